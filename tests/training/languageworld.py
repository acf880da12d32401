"""A tiny world "language": a written base in hub layout, ranked answers in a file, short steps.

The base is written and not trained (as the golden models are): it draws each token from what
follows the one before it in a few rubrics and answers. So its rubrics are valid now and then, and
a round takes seconds.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dynamicrubric import steps
from dynamicrubric.config import LanguageConfig, PretrainedConfig, merge
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.worlds.language.sources import fingerprints

TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL: Final = ("<|pad|>", "<|im_start|>", "<|im_end|>")
ANSWERS: Final = (
    "Yes, 7 of them, for example the red one.",
    "No, because it is late.",
    "Could you say which?",
    "I am sorry, I do not know!",
    "It may be 12.",
)
RUBRICS: Final = tuple(
    f'[{{"criterion":"{first}","weight":{weight}}},{{"criterion":"{second}","weight":1}}]'
    for weight, (first, second) in enumerate(
        (
            ("gives a number", "apologises"),
            ("uses an exclamation mark", "quotes something"),
            ("speaks of itself", "has code"),
            ("has fewer than 30 words", "offers further help"),
        ),
        start=1,
    )
)
"""No word of one criterion is followed by one word here and another there: what is drawn word by
word from them is a criterion of the bank."""
NUM_PROMPTS: Final = 24
HIDDEN_SIZE: Final = 192
UNSEEN: Final = -14.0
WORLD: Final[dict[str, Any]] = {
    "name": "language", "seed": 3, "against": [], "num_train_prompts": 4,
    "num_heldout_prompts": 4, "heldout_share": 0.4, "num_anchors": 4, "min_prompt_letters": 5,
    "max_prompt_letters": 100, "min_response_letters": 5, "max_response_letters": 100,
    "max_shown_letters": 30,
}  # fmt: skip
LORA: Final[dict[str, Any]] = {
    "rank": 4, "alpha": 8, "dropout": 0.0, "target_modules": ["o_proj", "down_proj"],
}  # fmt: skip
RECIPE: Final[dict[str, Any]] = {
    "seed": 1,
    "round": 1,
    "responses_per_set": 4,
    "rubrics": {
        "evaluator": "dynamic", "min_items": 1, "max_items": 3,
        "sampling": {"temperature": 1.0, "min_p": 0.05, "max_tokens": 48},
    },
    "verifier": {"error_rate": 0.0, "failure_rate": 0.0, "max_unscored_rate": 0.5},
    "generator_training": {
        "responses": "current", "objective": {"disc": 1.0, "anchor": 1.0}, "steps": 3,
        "prompts_per_step": 2, "group_size": 4, "learning_rate": 1e-3, "kl_beta": 0.05,
        "max_invalid_rate": 1.0,
    },
    "policy_training": {
        "steps": 3, "prompts_per_step": 2, "learning_rate": 1e-3, "kl_beta": 0.05,
        "max_invalid_rate": 1.0,
    },
    "policy_sampling": {"temperature": 1.0, "min_p": 0.05, "max_tokens": 24},
    "evaluation": {"sets_per_prompt": 2, "max_invalid_rate": 1.0},
    "versions": {},
}  # fmt: skip


def write_anchors(path: Path) -> None:
    """Write prompts with five ranked answers each, in the shape of local files."""
    rows = []
    for number in range(NUM_PROMPTS):
        answers = [f"{text} {number}" for text in ANSWERS]
        order = sorted(range(len(answers)), key=lambda place: (place * 7 + number) % 5)
        row = {
            "id": f"q{number}", "prompt": f"How many are left in the box {number}?",
            "responses": answers, "ranking": order, "tiers": [[place] for place in order],
            "source": "written for this test", "license": "Apache-2.0",
        }  # fmt: skip
        rows.append(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def chat_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with a chat template on the few texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*ANSWERS, *RUBRICS, "yes no Yes No"] * 3, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        padding_side="left",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def write_base(folder: Path, texts: Sequence[str] = (*ANSWERS, *RUBRICS, *RUBRICS)) -> None:
    """Write a base that draws each token from what follows the one before it in `texts`."""
    tokenizer = ChatTokenizer(chat_tokenizer())
    start = tokenizer.policy_prompt("Hi")[-1]
    rows = [[start, *tokenizer.content(text), tokenizer.eos_id] for text in texts]
    follows = Counter(pair for row in rows for pair in pairwise(row))
    starts = Counter(token for row in rows for token in row[:-1])
    assert len(starts) <= HIDDEN_SIZE, "too many different tokens"
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer.hf), hidden_size=HIDDEN_SIZE, intermediate_size=32,
            num_hidden_layers=1, num_attention_heads=4, max_position_embeddings=2048,
            tie_word_embeddings=False, bos_token_id=tokenizer.hf.bos_token_id,
            eos_token_id=tokenizer.eos_id, pad_token_id=tokenizer.pad_id, dtype="float32",
        )
    )  # fmt: skip
    place = {token: dimension for dimension, token in enumerate(sorted(starts))}
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        head = torch.full_like(model.lm_head.weight, UNSEEN)
        for token, dimension in place.items():
            model.model.embed_tokens.weight[token] = torch.eye(HIDDEN_SIZE)[dimension]
        for (token, after), count in follows.items():
            head[after, place[token]] = math.log(count / starts[token])
        model.lm_head.weight.copy_(head / math.sqrt(HIDDEN_SIZE))  # the norm scales by the root
    model.save_pretrained(str(folder))
    tokenizer.hf.save_pretrained(str(folder))


@dataclass(frozen=True)
class LanguageWorld:
    """The world's folders, and its steps."""

    root: Path

    def folder(self, name: str) -> Path:
        """Return a folder of the world; a step's name ends where its output is."""
        return self.root / name

    def recipe(self, **changed: Any) -> dict[str, Any]:
        """Return the tiny recipe with changes laid over it."""
        return merge(RECIPE, changed)

    def train(self, role: str, name: str, *, start: str, **changed: Any) -> Path:
        """Run a role's training; run again under the same name, it resumes."""
        out, work = self.root / name, self.root / f"work-{name}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        work.mkdir(exist_ok=True)
        every = changed.pop("every", 10)
        memory = {
            key: changed.pop(key)
            for key in ("rows_per_pass", "recompute_activations")
            if key in changed
        }
        shared = {
            "recipe": self.recipe(**changed), "prepared_dir": str(self.root / "prepared"),
            "out_dir": str(out), "work_dir": str(work), "checkpoint_every_steps": every,
            **memory,
        }  # fmt: skip
        if role == "generator":
            steps.train_generator(
                generator_dir=str(self.root / start),
                responses_dir=str(self.root / "responses"),
                **shared,
            )
        else:
            steps.train_policy(
                cell_hash="0123abcd",
                policy_dir=str(self.root / start),
                generator_dir=str(self.root / "generator_1"),
                **shared,
            )
        return out


def shared_world(base: Path) -> LanguageWorld:
    """Return the world of a test run, made by whichever of its processes needs it first."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of this run alone: its number is in the name
    root = base / "language-world"
    with (base / "language-world.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not root.exists():
            building = base / "language-world.building"
            building.mkdir()
            try:
                make_world(building)
                building.rename(root)
            finally:  # what is left of a failure would hide it from the next process
                shutil.rmtree(building, ignore_errors=True)
    return LanguageWorld(root)


def make_world(root: Path) -> LanguageWorld:
    """Prepare, warm-start both roles, sample the sets, train both roles for a few steps."""
    world = LanguageWorld(root)
    write_base(root / "checkpoint")
    write_anchors(root / "anchors.jsonl")
    settings = {**WORLD, "anchors": [str(root / "anchors.jsonl")]}
    backbone = {"checkpoint": str(root / "checkpoint"), "dtype": "float32", "lora": LORA}
    sources = fingerprints(
        LanguageConfig.model_validate(settings), PretrainedConfig.model_validate(backbone)
    )
    for name in ("prepared", "policy", "generator", "responses"):
        (root / name).mkdir()
    steps.prepare(
        world=settings, backbone=backbone, sources=sources, responses_per_set=4,
        min_rubric_items=1, max_rubric_items=3, out_dir=str(root / "prepared"),
    )  # fmt: skip
    for role, num_steps in (("policy", 0), ("generator", 3)):
        steps.warm_start(
            role=role,  # type: ignore[arg-type]
            prepared_dir=str(root / "prepared"),
            backbone=backbone,
            settings={"steps": num_steps, "batch_size": 4, "learning_rate": 1e-3},
            seed=1,
            out_dir=str(root / role),
            work_dir=str(root / f"work-{role}"),
        )
    steps.sample_responses(
        recipe=world.recipe(), policy_dir=str(root / "policy"),
        prepared_dir=str(root / "prepared"), out_dir=str(root / "responses"),
    )  # fmt: skip
    world.train("generator", "generator_1", start="generator")
    world.train("policy", "policy_1", start="policy")
    return world
