"""The world's tokenizer: a byte-level BPE trained on what its models read and write."""

from __future__ import annotations

from pathlib import Path

from dynamicrubric.engines.tokenizer import train_tokenizer
from dynamicrubric.worlds.postcards.criteria import names
from dynamicrubric.worlds.prepared import read_jsonl


def save_tokenizer(prepared_dir: Path, vocab_size: int) -> None:
    """Train the tokenizer on the warm starts' texts of a prepared folder, and save it there."""
    texts: list[str] = []
    for row in read_jsonl(prepared_dir / "sft_generator.jsonl"):
        texts += [row["prompt"], *row["responses"], row["rubric"]]
    texts += [row["response"] for row in read_jsonl(prepared_dir / "sft_policy.jsonl")]
    tokenizer = train_tokenizer(texts, vocab_size, names())
    tokenizer.save_pretrained(str(prepared_dir / "tokenizer"))
