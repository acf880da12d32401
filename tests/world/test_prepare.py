"""The files that a study starts from: the same for a seed, and without a held-out prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import WorldConfig
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.types import Rubric
from dynamicrubric.worlds.postcards import prepare
from dynamicrubric.worlds.postcards.prompts import prompt_by_id
from dynamicrubric.worlds.prepared import load_prepared, read_jsonl

FILES = ("anchors.jsonl", "sft_policy.jsonl", "sft_generator.jsonl")


def world(**changed: Any) -> WorldConfig:
    fields: dict[str, Any] = {
        "name": "postcards", "seed": 5, "num_heldout_prompts": 120, "num_anchors": 5,
    }  # fmt: skip
    return WorldConfig.model_validate(fields | changed)


def write(folder: Path, config: WorldConfig) -> Path:
    """Write a world with few texts a prompt."""
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "POSTCARDS_PER_PROMPT", 3)
        patch.setattr(prepare, "RUBRICS_PER_PROMPT", 3)
        prepare.write_world(config, 4, (1, 3), folder)
    return folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("world") / "prepared", world())


def test_heldout_prompts_are_in_no_file_that_trains(prepared: Path) -> None:
    heldout = load_prepared(prepared).prompts["heldout"]
    assert len(heldout) == 120
    for name in FILES:
        text = (prepared / name).read_text(encoding="utf-8")
        for prompt_id, prompt in heldout.items():
            assert f'"{prompt_id}"' not in text, name
            assert f'"{prompt}"' not in text, name


def test_every_training_prompt_is_in_every_file_that_trains(prepared: Path) -> None:
    training = load_prepared(prepared).prompts["train"]
    assert {row["prompt_id"] for row in read_jsonl(prepared / "anchors.jsonl")} == set(training)
    for name in FILES[1:]:
        assert {row["prompt"] for row in read_jsonl(prepared / name)} == set(training.values())


def test_prompts_file_says_what_the_world_says(prepared: Path) -> None:
    for prompt_id, text in load_prepared(prepared).all_prompts.items():
        assert prompt_by_id(prompt_id).text == text


def test_generators_texts_are_rubrics_for_sets_and_for_prompts_alone(prepared: Path) -> None:
    rows = read_jsonl(prepared / "sft_generator.jsonl")
    assert {len(row["responses"]) for row in rows} == {0, 4}
    for row in rows[::7]:
        assert isinstance(parse_rubric(row["rubric"], max_items=3), Rubric)


def test_anchor_of_a_heldout_prompt_is_refused(prepared: Path, tmp_path: Path) -> None:
    leaked = next(iter(load_prepared(prepared).prompts["heldout"]))
    for name in ("prompts.jsonl", "anchors.jsonl"):
        (tmp_path / name).write_bytes((prepared / name).read_bytes())
    with (tmp_path / "anchors.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"prompt_id": leaked, "responses": ["a", "b"]}) + "\n")
    with pytest.raises(AssertionError, match=leaked):
        load_prepared(tmp_path)


def test_world_of_a_seed_is_the_same_bytes_and_of_another_seed_is_not(
    prepared: Path, tmp_path: Path
) -> None:
    again, other = write(tmp_path / "again", world()), write(tmp_path / "other", world(seed=6))
    for path in prepared.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()
    for name in ("prompts.jsonl", *FILES):
        assert (other / name).read_bytes() != (prepared / name).read_bytes()
