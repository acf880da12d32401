"""The probes' steps with a real small generator, beside the round's own measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dynamicrubric import steps
from dynamicrubric.probes.files import read_courses
from dynamicrubric.probes.names import FIRST_ORDER, SECOND_ORDER

NOISE = {"verifier": {"error_rate": 0.2, "failure_rate": 0.05}}


def evaluate(tiny: Any, where: Path, generator: Path, **changed: Any) -> Path:
    where.mkdir()
    steps.evaluate_round(
        recipe=tiny.recipe(**changed),
        policy_dir=str(tiny.policy),
        generator_dir=str(generator),
        start_policy_dir=str(tiny.policy),
        prepared_dir=str(tiny.prepared),
        out_dir=str(where),
    )
    return where


def cell(
    tiny: Any, key: str, generator: Path, folder: Path, older: dict[str, Path], **changed: Any
) -> dict[str, Any]:
    return {
        "key": key,
        "recipe": tiny.recipe(**changed),
        "generator_dir": str(generator),
        "evaluation_dir": str(folder),
        "older": {name: str(path) for name, path in older.items()},
    }


@pytest.fixture(scope="module")
def probed(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Probe a dynamic evaluator in round 0 and 1, and a static one with kept rubrics."""
    root = tmp_path_factory.mktemp("probe")
    kept = tiny.keep_rubrics(root / "kept")
    static = {"rubrics": {"evaluator": "static"}, "round": 1, **NOISE}
    first = evaluate(tiny, root / "first", tiny.generator, round=0, **NOISE)
    second = evaluate(tiny, root / "second", tiny.generator, round=1, **NOISE)
    third = evaluate(tiny, root / "third", kept, **static)
    both = {"before": first, "start": first}
    (root / "out").mkdir()
    steps.probe_evaluators(
        cells=[
            cell(tiny, "first", tiny.generator, first, {}, round=0, **NOISE),
            cell(tiny, "second", tiny.generator, second, both, round=1, **NOISE),
            cell(tiny, "third", kept, third, {"before": first}, **static),
        ],
        attacks=[],
        sets_per_prompt=1,
        gold_judge=None,
        prepared_dir=str(tiny.prepared),
        out_dir=str(root / "out"),
    )
    return {
        "attacks": pd.read_parquet(root / "out/attacks.parquet"),
        "course": read_courses(root / "out/course.parquet"),
        "evaluations": {"first": first, "second": second, "third": third},
    }


def test_unattacked_scores_and_rubrics_are_those_of_the_rounds_own_evaluation(
    probed: dict[str, Any],
) -> None:
    for key, folder in probed["evaluations"].items():
        own = pd.read_parquet(folder / "responses.parquet")
        own = own[own["set_index"] == 0].set_index(["prompt_id", "sample_index"])
        written = pd.read_parquet(folder / "rubrics.parquet").set_index("rubric_id")["text"]
        rows = probed["attacks"][probed["attacks"]["cell"] == key]
        assert rows["prompt_id"].nunique() == own.index.get_level_values(0).nunique()
        assert rows["score_before"].notna().any()
        for row in rows.itertuples():
            expected = own.loc[(row.prompt_id, row.place)]
            assert (row.score_before is pd.NA) == (expected["score"] is pd.NA)
            assert row.score_before is pd.NA or row.score_before == expected["score"]
            assert row.quality_before == expected["true_quality"]
            assert row.rubric_before == written[row.set_id]


def test_every_attack_is_in_every_mode_with_every_prompt_once(probed: dict[str, Any]) -> None:
    rows = probed["attacks"]
    expected = {(name, mode) for name in FIRST_ORDER for mode in ("kept", "seen")}
    expected |= {(name, "seen") for name in SECOND_ORDER}
    for _, own in rows.groupby("cell"):
        sizes = own.groupby(["attack", "mode"])["set_id"].nunique()
        assert set(sizes.index) == expected
        assert set(sizes) == {own["prompt_id"].nunique()}


def test_generator_that_reads_the_set_writes_another_rubric_for_an_attacked_one(
    probed: dict[str, Any],
) -> None:
    rows = probed["attacks"]
    changed = rows["rubric_before"] != rows["rubric_after"]
    by_place = changed.groupby([rows["cell"], rows["mode"]]).sum()
    assert by_place["first", "kept"] == 0
    assert by_place["first", "seen"] > 0
    assert by_place["third"].sum() == 0  # kept rubrics, whatever is in the set
    kept = rows[(rows["cell"] == "third") & (rows["order"] == "first")]
    gains = kept.pivot(index=["attack", "set_id"], columns="mode", values="score_gain")
    assert gains["kept"].equals(gains["seen"])


def test_course_of_round_one_has_one_older_policy_and_truth_as_gold(
    probed: dict[str, Any],
) -> None:
    course = probed["course"]
    assert set(course) == {"second", "third"}
    before = [row for row in course["second"] if row.reference == "before"]
    start = [row for row in course["second"] if row.reference == "start"]
    assert [(r.set_id, r.proxy, r.gold) for r in before] == [
        (r.set_id, r.proxy, r.gold) for r in start
    ]
    assert len(before) == 8  # four prompts, two sets each
    assert all(row.num_pairs == 4 for row in before)  # two responses of either policy
    assert all(row.gold.value is not None for row in before)


def test_watch_measures_the_same_as_the_probe(
    tiny: Any, probed: dict[str, Any], tmp_path: Path
) -> None:
    folders = probed["evaluations"]
    older = {"before": folders["first"]}
    steps.watch_course(
        cell=cell(tiny, "second", tiny.generator, folders["second"], older, round=1, **NOISE),
        gold_judge=None,
        prepared_dir=str(tiny.prepared),
        out_dir=str(tmp_path),
    )
    found = read_courses(tmp_path / "course.parquet")["second"]
    assert found == [row for row in probed["course"]["second"] if row.reference == "before"]
