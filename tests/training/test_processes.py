"""A training in two processes: the rewards of one, no group cut, no row lost or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import load_file

from dynamicrubric.errors import UserError

pytestmark = pytest.mark.slow

EXACT = {
    "policy": ["prompt_id", "sample_index", "text", "rubric_id", "verdicts", "score", "reward"],
    "generator": ["row", "text", "invalid_reason", "num_items", "r_disc", "r_anchor"],
}
"""Columns of what is sampled, asked and earned: none depends on how many processes there are."""


@pytest.fixture(scope="module", params=["policy", "generator"])
def pair(request, tiny, tmp_path_factory) -> tuple[str, Any, Any]:
    """The same training in one process and in two."""
    where = tmp_path_factory.mktemp(request.param)
    train = getattr(tiny, f"train_{request.param}")
    return request.param, train(where / "one"), train(where / "two", processes=2, every=1)


def rows_of(run: Any, step: int, columns: list[str]) -> list[tuple[str, ...]]:
    rows = run.rollouts[run.rollouts["step"] == step]
    return [tuple(map(repr, row)) for row in rows[columns].itertuples(index=False)]


def test_two_processes_reward_the_rows_of_one(pair) -> None:
    role, one, two = pair
    found = rows_of(two, 1, EXACT[role])
    assert found == rows_of(one, 1, EXACT[role])
    assert len(found) == 8
    assert len({row[0] for row in found}) == 2
    for column in [name for name in one.rollouts if name.startswith("advantage")]:
        ours, theirs = (r.rollouts.query("step == 1")[column].tolist() for r in (two, one))
        assert ours == pytest.approx(theirs)


def test_two_processes_keep_every_row_of_every_step_once(pair) -> None:
    role, one, two = pair
    key = ["step", "prompt_id" if role == "policy" else "row"]
    sizes: dict[str, pd.Series] = {}
    for name, run in (("one", one), ("two", two)):
        sizes[name] = run.rollouts.groupby(key, sort=True).size()
    assert sizes["two"].equals(sizes["one"])
    assert set(sizes["two"]) == {4}


def test_two_processes_learn_what_one_learns(pair, tiny) -> None:
    role, one, two = pair
    assert_equal_trainings(getattr(tiny, role), one, two)


def assert_equal_trainings(start: Path, one: Any, two: Any, but: tuple[str, ...] = ()) -> None:
    """Compare logs and weights of two trainings that may round differently."""
    assert [line["step"] for line in two.log] == [line["step"] for line in one.log]
    first, second = one.log[0]["metrics"], two.log[0]["metrics"]
    assert first.keys() == second.keys()
    for name, value in first.items():
        if name in but:
            continue
        assert second[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    before, left, right = (
        load_file(folder / "model.safetensors") for folder in (start, one.out, two.out)
    )
    moved = sum(float((left[name] - before[name]).abs().sum()) for name in before)
    apart = sum(float((left[name] - right[name]).abs().sum()) for name in before)
    assert apart < 0.1 * moved


def test_rows_taken_through_the_model_in_parts_teach_the_same(tiny, tmp_path: Path) -> None:
    whole = tiny.train_policy(tmp_path / "whole")
    parts = tiny.train_policy(tmp_path / "parts", rows_per_pass=2)
    columns = EXACT["policy"]
    assert rows_of(parts, 1, columns) == rows_of(whole, 1, columns)
    # TRL logs these two as means of passes, whose completions differ in length.
    assert_equal_trainings(tiny.policy, whole, parts, but=("entropy", "kl"))


def test_training_of_two_processes_goes_on_from_its_last_complete_checkpoint(tiny, tmp_path):
    whole = tiny.train_policy(tmp_path, processes=2, every=1)
    before = whole.bytes
    (whole.work / "checkpoints/checkpoint-3/complete.json").unlink()
    again = tiny.train_policy(tmp_path, processes=2, every=1)
    assert again.bytes == before


def test_group_that_two_processes_would_cut_is_refused(tiny, tmp_path: Path) -> None:
    changed = {"policy_training": {"prompts_per_step": 3}}
    with pytest.raises(UserError, match="prompts_per_step = 3 and 2 processes"):
        tiny.train_policy(tmp_path, processes=2, **changed)
    assert not list((tmp_path / "out").iterdir())
