"""The parts of Delta_gap in the report: figures, tables by item, picture, and what is said of P."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.metrics import DERIVED_METRICS, GAP_PAIRS, tracker_keys
from dynamicrubric.report import write_comparison
from dynamicrubric.report.cellfiles import Measured, derived_metrics, load_cell
from dynamicrubric.theory import pairs_text

ARMS = ("coevolved", "static", "oracle")


@pytest.fixture(scope="module")
def written(
    shared_study: Callable[..., Any],
    without_pictures: Callable[[], Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Any, Path]:
    study = shared_study(arms=("coevolved", "static"), rounds=2, seeds=(1, 2))
    results = tmp_path_factory.mktemp("results")
    with without_pictures():
        write_comparison(study.plan, study.questions, study.root, results)
    return study, results


def rows_of(results: Path, name: str) -> list[dict[str, str]]:
    with (results / f"report/tables/{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_parts_follow_from_what_a_round_stored_and_add_up(written: tuple[Any, Path]) -> None:
    study, _ = written
    cell = study.plan.cells["coevolved-s1-r1"]
    found = load_cell(study.root, cell).round_metrics()
    size = cell.recipe.responses_per_set
    assert found["gap_disc"].value == pytest.approx(2 * size / (size - 1) * found["r_disc"].value)
    assert found["gap_wrong"].value == pytest.approx(2 * found["r_dir"].value)
    assert found["delta_gap"].value == pytest.approx(
        found["gap_disc"].value - found["gap_wrong"].value - found["r_cov"].value
    )
    told_apart = found["gap_disc"].value - found["r_cov"].value
    assert found["wrong_way_share"].value == pytest.approx(found["r_dir"].value / told_apart)
    assert found["wrong_way_share"].n_scored == found["r_dir"].n_scored
    assert set(DERIVED_METRICS) <= tracker_keys()


def test_share_is_unscored_where_nothing_is_told_apart_or_sets_differ() -> None:
    def share(disc: Measured, wrong: Measured, cov: Measured) -> Measured:
        return derived_metrics({"r_disc": disc, "r_dir": wrong, "r_cov": cov}, 4)["wrong_way_share"]

    none, some = Measured(None, 0, 8), Measured(0.1, 8, 8)
    zero = Measured(0.0, 8, 8)
    assert share(zero, zero, zero) == Measured(None, 0, 8)
    assert share(some, none, none) == Measured(None, 0, 8)  # R_disc needs no true quality
    assert share(some, Measured(0.1, 7, 8), Measured(0.0, 7, 8)) == Measured(None, 0, 8)
    assert share(some, some, zero).value == pytest.approx(0.1 / (8 / 3 * 0.1))


def test_tables_have_every_arm_round_and_criterion(written: tuple[Any, Path]) -> None:
    _, results = written
    parts = rows_of(results, "gap_parts")
    assert [(row["arm"], row["round"]) for row in parts] == [
        (arm, str(number)) for arm in ("coevolved", "static") for number in range(3)
    ]
    for row in parts:
        gap, disc, wrong, cov = (
            float(row[name]) for name in ("delta_gap", "gap_disc", "gap_wrong", "r_cov")
        )
        assert gap == pytest.approx(disc - wrong - cov)
        assert float(row["identity_error"]) <= 1e-12
        assert row["seeds"] == "1 2"
    items = rows_of(results, "gap_items")
    own = [row for row in items if (row["arm"], row["round"]) == ("coevolved", "1")]
    assert {row["criterion"] for row in own} == {
        'Score > 90% | "quoted" ../x', "criterion 1", "criterion 2"
    }  # fmt: skip
    (whole,) = (row for row in parts if (row["arm"], row["round"]) == ("coevolved", "1"))
    total = sum(float(row["delta_gap"]) for row in own)
    assert total == pytest.approx(float(whole["delta_gap_uniform"]))
    # only the item that all but the first response meet tells any two apart
    told = {row["criterion"]: float(row["disc"]) for row in own}
    assert told["criterion 1"] > 0.0
    assert told["criterion 2"] == told['Score > 90% | "quoted" ../x'] == 0.0


def test_made_up_parts_are_said_not_to_be_what_the_rounds_measured(
    written: tuple[Any, Path],
) -> None:
    _, results = written
    page = (results / "report/index.html").read_text()
    assert "NOT what the rounds measured" in page
    assert "exact to rounding" in page
    assert (results / "report/plots/gap_parts.png").is_file()


def test_p_is_printed_with_every_gap(written: tuple[Any, Path]) -> None:
    assert pairs_text() == GAP_PAIRS
    _, results = written
    assert GAP_PAIRS in (results / "table.md").read_text()
    page = (results / "report/index.html").read_text()
    captions = [text for text in page.split("<figcaption>") if "Δ gap" in text.split("</")[0]]
    charts = [one.split("</figcaption>")[0] for one in captions]
    assert any("P: " + GAP_PAIRS in one for one in charts)
    assert f"P of Δ gap</dt><dd>{GAP_PAIRS}" in page


def test_parts_are_a_table_of_the_comparison(written: tuple[Any, Path]) -> None:
    _, results = written
    text = (results / "table.md").read_text()
    assert "## Parts of Δ gap in round 2" in text
    head = text.split("## Parts of Δ gap in round 2")[1].splitlines()[2]
    assert [cell.strip() for cell in head.strip("|").split("|")][1:] == [
        "Δ gap", "c\\_K R\\_disc", "2 R\\_dir", "R\\_cov", "wrong way"
    ]  # fmt: skip


def test_picture_is_drawn_and_says_so_where_no_set_has_a_gap(
    shared_study: Callable[..., Any], tmp_path: Path
) -> None:
    from dynamicrubric.report.gapfigures import GapFigures, gap_figures
    from dynamicrubric.report.gapparts import GapParts
    from dynamicrubric.report.gapsection import gap_section
    from dynamicrubric.report.gather import gather
    from dynamicrubric.report.outcomes import collect_outcomes

    study = shared_study(arms=("coevolved", "static"), rounds=2, seeds=(1, 2))
    figures = gap_figures(collect_outcomes(study.plan, study.root), gather(study.plan, study.root))
    (section,) = gap_section(figures, tmp_path / "some", "PARTIAL")
    assert section.charts[0].png.stat().st_size > 1000
    assert "coevolved" in section.charts[0].alt and "PARTIAL" not in section.lead
    none = GapFigures(figures.table, dict.fromkeys(figures.parts, GapParts()))
    assert gap_section(none, tmp_path / "none") == ()
    assert (tmp_path / "none/gap_parts.svg").is_file()
