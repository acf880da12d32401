"""Held-out sets of finished cells as a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.benchmarks.settings import StudySource
from dynamicrubric.benchmarks.study import Study, study_items
from dynamicrubric.errors import UserError
from dynamicrubric.evaluation import SampledSet
from dynamicrubric.evaluators.judging import ResponseSet


def sampled(*texts: str, failures: tuple[str | None, ...] = ()) -> SampledSet:
    return SampledSet("p/0", ResponseSet("p", "Write!", texts, failures), (), ())


def test_sets_are_items_best_first_with_equal_quality_in_a_tier() -> None:
    quality = {"a": 0.1, "b": 0.7, "c": 0.1, "d": 0.4}
    (item,), refusals = study_items([sampled("a", "b", "c", "d")], lambda _, t: quality[t], "P_1")
    assert refusals == []
    assert item.responses == ("b", "d", "a", "c")
    assert item.tiers == (0, 1, 2, 2)
    assert item.quality == (0.7, 0.4, 0.1, 0.1)
    assert (item.subset, item.prompt_id) == ("P_1", "p")


def test_sets_without_a_response_or_without_quality_are_refused_with_a_reason() -> None:
    failed = sampled("a", "", failures=(None, "too_long"))
    unknown = sampled("a", "b")
    _, refusals = study_items([failed, unknown], lambda _, t: 0.5 if t == "a" else None, "P_0")
    assert [one.reason for one in refusals] == ["failed_response", "unknown_quality"]
    assert all("P_0" in one.place for one in refusals)


def with_reasons(tables: dict[str, list[dict[str, Any]]]) -> None:
    """Give the made-up responses what an evaluation's have: a reason, and a text of their own."""
    for number, row in enumerate(tables["responses"]):
        row["score_reason"] = None
        row["text"] = f"postcard {number}"


@pytest.fixture
def study(fake_study: Any) -> Study:
    fake = fake_study(arms=("coevolved", "static"), seeds=(1, 2), rounds=2, prompts=20, write=False)
    for key in [*fake.plan.starts, *fake.plan.cells]:
        fake.write_cell(key, alter=with_reasons)
    found = Study(fake.root)
    found.__dict__["plan"] = fake.plan
    return found


def test_policies_of_an_arm_are_subsets_and_a_limit_takes_the_same_sets(study: Study) -> None:
    source = StudySource(arm="coevolved", rounds=(0, 2))
    loaded = study.items(source, 1, None)
    assert {item.subset for item in loaded.items} == {"P_0", "P_2"}
    assert len(loaded.items) == 2 * 20 * 2
    few = [study.items(source, seed, 10) for seed in (1, 2)]
    assert len(few[0].items) == 20
    assert [i.id for i in few[0].items] == [i.id for i in few[1].items]


def test_cells_that_are_not_there_are_named(study: Study) -> None:
    with pytest.raises(UserError, match="arm frozen with seed 1"):
        study.items(StudySource(arm="frozen"), 1, None)
    with pytest.raises(UserError, match="round 7"):
        study.generator("study:coevolved@7", 1)
    with pytest.raises(UserError, match="study:ARM@ROUND"):
        study.generator("study:coevolved", 1)
    for path in (study.root / "data/runs").glob("coevolved-s1-r2/evaluation/record.json"):
        path.unlink()
    with pytest.raises(UserError, match="coevolved-s1-r2"):
        study.items(StudySource(), 1, None)


def test_evaluation_that_its_record_does_not_name_is_refused(study: Study) -> None:
    cell = study.cell("coevolved", 1, 1)
    path = Path(study.root, cell.directory, "evaluation", "responses.parquet")
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(UserError, match=r"responses\.parquet"):
        study.items(StudySource(), 1, None)
