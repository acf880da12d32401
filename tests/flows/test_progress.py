"""The share done that a person sees: it counts finished steps and never falls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamicrubric.config import load_config
from dynamicrubric.plan import ROLES, expand
from flows.progress import MARKS, Progress
from flows.stages import Stage, stages_of
from tasks.study import write_status

ROOT = Path(__file__).resolve().parents[2]
CELL = "round@coevolved-s1-r1"


class Shown:
    """A progress display and the status files that it reads."""

    def __init__(self, work: Path) -> None:
        self.work = work
        plan = expand(load_config(ROOT / "profiles/postcards.yaml"))
        stages = stages_of(plan, {"policy": 100, "generator": 100})
        self.plan = plan
        self.stage: Stage = next(stage for stage in stages if stage.name == CELL)
        self.others = [stage for stage in stages if stage.name != CELL]
        training = plan.cells["coevolved-s1-r1"].recipe.policy_training
        assert training is not None
        self.policy_steps = training.steps
        self.generator_steps = self.stage.num_steps - training.steps
        self.seconds = 0.0
        self.progress = Progress(plan, stages, work, now=lambda: self.seconds)
        self.progress.begin(CELL)

    def at(self, step: str, line: tuple[int, int] | None = None) -> float:
        """Return the share done when the cell is on a step, at (step, total) of its log."""
        log = self.work / f"{step}.jsonl"
        if line is not None:
            log.write_text(json.dumps({"step": line[0], "total": line[1]}) + "\n")
        write_status(self.work, self.stage.group, step, log)
        return self.progress.share_done()


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    return Shown(tmp_path)


def test_share_done_never_falls_through_a_round(shown: Shown) -> None:
    shares = [
        shown.progress.share_done(),
        shown.at("sample_responses"),
        shown.at("train_generator"),
        shown.at("train_generator", (shown.generator_steps, shown.generator_steps)),
        shown.at("train_policy"),  # has not logged yet
        shown.at("train_policy", (1, shown.policy_steps)),
        shown.at("train_policy", (shown.policy_steps, shown.policy_steps)),
        shown.at("evaluate_round"),
    ]
    assert shares == sorted(shares)
    assert shares[0] == shares[2] == 0.0
    assert shares[2] < shares[3] == shares[4] < shares[5] < shares[6] == shares[7]
    shown.progress.end(CELL, "done")
    assert shown.progress.share_done() > shares[-1]


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_share_done_and_time_left_do_not_jump_when_stages_are_stopped(
    shown: Shown, state: str
) -> None:
    for name in ("warm_start@policy", "warm_start@generator"):
        shown.progress.begin(name)
        shown.progress.end(name, "done")
        shown.seconds += 10
        shown.progress.seconds_left()
    before = shown.at("train_policy", (shown.policy_steps // 2, shown.policy_steps))
    left = shown.progress.seconds_left()
    assert left is not None
    for name in shown.progress.states():  # that one, and those whose turn had not come
        if not name.startswith("warm_start@"):
            shown.progress.end(name, state)
    assert shown.progress.share_done() == before
    after = shown.progress.seconds_left()
    assert after is not None
    assert after >= left
    assert set(shown.progress.states().values()) == {"done", state}
    assert MARKS[state] not in (MARKS["done"], MARKS["waiting"])


def test_time_left_is_from_the_pace_of_this_run_and_not_from_what_it_goes_on_with(
    shown: Shown,
) -> None:
    resumed = 3 * shown.generator_steps // 4
    shown.seconds = 60.0  # starting
    shown.at("train_generator", (resumed, shown.generator_steps))
    assert shown.progress.seconds_left() is None
    shown.seconds += 30.0
    shown.at("train_generator", (shown.generator_steps, shown.generator_steps))
    left = shown.progress.seconds_left()
    assert left is not None
    stages = expand(load_config(ROOT / "profiles/postcards.yaml"))
    steps = sum(25 + one.num_steps for one in stages_of(stages, dict.fromkeys(ROLES, 100)))
    share = (25 + shown.stage.num_steps) / shown.stage.num_steps * 0.9
    pace = share * (shown.generator_steps - resumed) / 30.0
    assert left == pytest.approx((steps - share * shown.generator_steps) / pace)


def test_what_has_nothing_to_do_counts_as_done_from_the_start(shown: Shown) -> None:
    stages = [shown.stage, *shown.others]
    progress = Progress(shown.plan, stages, shown.work, fresh={one.name for one in shown.others})
    weights = [25 + one.num_steps for one in stages]
    assert progress.share_done() == pytest.approx(1 - weights[0] / sum(weights))
    assert progress.seconds_left() is None


def test_share_done_of_a_stage_that_begins_again_starts_anew(shown: Shown) -> None:
    assert shown.at("evaluate_round") > 0.0
    shown.progress.begin(CELL)
    assert shown.progress.share_done() == 0.0
