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
    first, second = one.log[0]["metrics"], two.log[0]["metrics"]
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert second[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    assert [line["step"] for line in two.log] == [1, 2, 3]
    weights, others = (load_file(run.out / "model.safetensors") for run in (one, two))
    assert weights.keys() == others.keys()
    started = load_file(getattr(tiny, role) / "model.safetensors")
    moved = sum(float((weights[name] - started[name]).abs().sum()) for name in weights)
    apart = sum(float((weights[name] - others[name]).abs().sum()) for name in weights)
    assert apart < 0.1 * moved


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
