"""Writes the world's data: prompts, anchor lists of both splits, the generator's warm start.

`dynamicrubric.data` reads, filters, splits and counts; here as many prompts are taken as the study
asks for, and of each list as many responses, no two of which tie.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from dynamicrubric.config import LanguageConfig, PretrainedConfig
from dynamicrubric.data.prepare import prepare as prepare_data
from dynamicrubric.data.settings import DataSettings, FilterSettings, SplitSettings
from dynamicrubric.errors import UserError
from dynamicrubric.rubrics import render_rubric
from dynamicrubric.seeds import generator_for
from dynamicrubric.worlds.base import BASE_FOLDER, LANGUAGE, WORLD_FILE
from dynamicrubric.worlds.language.rubric_prior import prior_rubric
from dynamicrubric.worlds.language.sources import check_sources
from dynamicrubric.worlds.prepared import HELDOUT_ANCHORS, Split, read_jsonl

RUBRICS_PER_PROMPT: Final = 8
PROMPT_ONLY_SHARE: Final = 0.25
"""Share of the generator's warm start without responses, so that one G_0 serves both evaluators."""


_ANCHOR_FILES: Final[Mapping[Split, str]] = {
    "train": "anchors.jsonl",
    "heldout": HELDOUT_ANCHORS,
}


@dataclass(frozen=True)
class RankedPrompt:
    """A prompt with its anchor list, best first, no ties."""

    id: str
    text: str
    anchors: tuple[str, ...]


def write_language(
    world: LanguageConfig,
    backbone: PretrainedConfig,
    num_responses: int,
    num_items: tuple[int, int],
    out_dir: Path,
    planned: Sequence[Mapping[str, str]],
) -> None:
    """Write prompts, anchors of both splits, the warm start, world.json, the card and the base.

    Args:
        world: the world's settings.
        backbone: the pretrained backbone, copied as the base.
        num_responses: K, most responses in a set of the generator's warm start.
        num_items: fewest and most items of a warm-start rubric.
        out_dir: existing, empty folder.
        planned: what the sources were when the study was planned.

    Raises:
        UserError: a source is another one by now, too few prompts pass, or the base cannot be had.
    """
    # Imported here: it loads torch, and whoever only reads settings does not need that.
    from dynamicrubric.engines.checkpoints import write_base

    check_sources(world, backbone, planned)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "prepared"
        prepare_data(list(world.anchors), list(world.against), folder, _data_settings(world))
        found = {
            split: _ranked(folder, split, name, world) for split, name in _ANCHOR_FILES.items()
        }
        for name in ("card.md", "counts.json", "overlaps.csv"):
            shutil.copyfile(folder / name, out_dir / name)
    training = found["train"][: world.num_train_prompts]
    heldout = found["heldout"][: world.num_heldout_prompts]
    _check_left(world, training, heldout)
    _write(
        out_dir / "prompts.jsonl",
        (
            {"id": one.id, "text": one.text, "split": split}
            for split, rows in (("train", training), ("heldout", heldout))
            for one in rows
        ),
    )
    for name, rows in (("anchors.jsonl", training), (HELDOUT_ANCHORS, heldout)):
        _write(
            out_dir / name,
            ({"prompt_id": one.id, "responses": list(one.anchors)} for one in rows),
        )
    _write(out_dir / "sft_generator.jsonl", _rubrics(training, num_responses, num_items, world))
    origin = write_base(backbone.checkpoint, out_dir / BASE_FOLDER)
    facts = {"name": LANGUAGE, "dtype": backbone.dtype, "checkpoint": backbone.checkpoint, **origin}
    (out_dir / WORLD_FILE).write_text(json.dumps(facts) + "\n", encoding="utf-8")


def thinned(texts: Sequence[str], tiers: Sequence[int], number: int) -> tuple[str, ...] | None:
    """Take responses of different tiers, evenly from best to worst; None if there are too few.

    Args:
        texts: best first.
        tiers: sizes of the groups that tie, best first.
        number: how many to take.

    >>> thinned(["a", "b", "c", "d"], [1, 2, 1], 2), thinned(["a", "b"], [2], 2)
    (('a', 'd'), None)
    """
    if len(tiers) < number:
        return None
    firsts = [texts[int(start)] for start in np.cumsum([0, *tiers[:-1]])]
    return tuple(firsts[round(place)] for place in np.linspace(0, len(firsts) - 1, number))


def cut_at_word(text: str, most: int) -> str:
    """Return the beginning of a text, whole words of it.

    >>> cut_at_word("one two three", 9)
    'one two'
    """
    return text if len(text) <= most else text[: most + 1].rsplit(maxsplit=1)[0][:most]


def _data_settings(world: LanguageConfig) -> DataSettings:
    return DataSettings(
        filters=FilterSettings(
            min_responses=world.num_anchors,
            min_prompt_chars=world.min_prompt_letters,
            max_prompt_chars=world.max_prompt_letters,
            min_best_chars=world.min_response_letters,
        ),
        splits=SplitSettings(heldout_share=world.heldout_share, seed=world.seed),
    )


def _ranked(folder: Path, split: Split, name: str, world: LanguageConfig) -> list[RankedPrompt]:
    """Return a split's prompts whose lists are long enough, in the order of their hashes."""
    texts = {
        row["id"]: row["text"]
        for row in read_jsonl(folder / "prompts.jsonl")
        if row["split"] == split
    }
    found = []
    for row in read_jsonl(folder / name):
        kept, tiers = _short_ones(row["responses"], row["tiers"], world.max_response_letters)
        anchors = thinned(kept, tiers, world.num_anchors)
        if anchors is not None:
            found.append(RankedPrompt(row["prompt_id"], texts[row["prompt_id"]], anchors))
    return found


def _short_ones(
    texts: Sequence[str], tiers: Sequence[int], longest: int
) -> tuple[list[str], list[int]]:
    kept: list[str] = []
    sizes: list[int] = []
    start = 0
    for size in tiers:
        fitting = [text for text in texts[start : start + size] if len(text) <= longest]
        start += size
        if fitting:
            kept += fitting
            sizes.append(len(fitting))
    return kept, sizes


def _check_left(
    world: LanguageConfig, training: Sequence[RankedPrompt], heldout: Sequence[RankedPrompt]
) -> None:
    got, asked = (
        f"{first} training and {second} held-out prompts"
        for first, second in (
            (len(training), len(heldout)),
            (world.num_train_prompts, world.num_heldout_prompts),
        )
    )
    if got != asked:
        raise UserError(
            doing=f"preparing the prompts of {', '.join(world.anchors)}",
            got=f"{got} with {world.num_anchors} answers of different rank, of at most "
            f"{world.max_response_letters} letters each",
            expected=asked,
            remedy="name more sources, loosen the limits under world in params.yaml, or ask for "
            "fewer prompts there",
        )


def _rubrics(
    prompts: Iterable[RankedPrompt],
    num_responses: int,
    num_items: tuple[int, int],
    world: LanguageConfig,
) -> Iterable[Mapping[str, Any]]:
    """Yield the warm start's texts; responses are those of the anchor list, in random order."""
    for one in prompts:
        rng = generator_for(world.seed, "rubric_examples", one.id)
        texts = [cut_at_word(text, world.max_shown_letters) for text in one.anchors]
        for _ in range(RUBRICS_PER_PROMPT):
            alone = rng.random() < PROMPT_ONLY_SHARE
            shown = [texts[int(place)] for place in rng.permutation(len(texts))[:num_responses]]
            responses = [] if alone else shown
            rubric = prior_rubric(one.text, responses, num_items, rng)
            yield {"prompt": one.text, "responses": responses, "rubric": render_rubric(rubric)}


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
