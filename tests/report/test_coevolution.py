from __future__ import annotations

import csv
import io
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from rich.console import Console

from dynamicrubric.errors import UserError
from dynamicrubric.grid import GENERATORS, POLICIES, UNDER, planned_grids
from dynamicrubric.metrics import ROUND_METRICS
from dynamicrubric.report import compare_arms, console, heat_map, markdown, write_comparison
from dynamicrubric.report.cellfiles import SET_METRICS, load_cell
from dynamicrubric.report.coevolution import (
    coevolution_notes,
    diagonal_deviation,
    read_coevolution,
)
from dynamicrubric.report.gridtable import GridTable, missing_grids, read_grids, write_grid_csv
from dynamicrubric.report.heatmap import PANELS, draw_grid
from dynamicrubric.stats import holm
from tasks.disk import remove

PAIR = ("coevolved", "stale")


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_grid_has_a_row_for_every_seed_generator_policy_and_metric(shared_study):
    study = shared_study(arms=PAIR, seeds=(1, 2), rounds=2)
    table = read_grids(study.plan, study.root)
    places = {(row.seed, row.generator, row.policy, row.metric) for row in table.rows}
    assert len(places) == len(table.rows) == 2 * 4 * 3 * len(SET_METRICS)
    assert table.seeds == (1, 2)
    assert {row.n_total for row in table.rows} == {48}
    assert table.at(1, "G_2", "P_1", "delta_gap").n_scored == 43  # every ninth is invalid


def test_grid_of_a_generator_on_its_own_rounds_responses_is_that_rounds_evaluation(shared_study):
    study = shared_study(arms=PAIR, rounds=2)
    table = read_grids(study.plan, study.root)
    for number in range(3):
        cell = study.plan.cell(study.plan.paths["coevolved", 1][number])
        own = load_cell(study.root, cell).round_metrics()
        for metric in SET_METRICS:
            found = table.at(1, f"G_{number}", f"P_{number}", metric)
            assert found.value == pytest.approx(own[metric].value, abs=1e-12)
            assert (found.n_scored, found.n_total) == (own[metric].n_scored, own[metric].n_total)
    assert read_coevolution(study.plan, study.root).deviation == 0.0


def test_diagonal_of_another_machine_is_named_with_how_far_it_is_off(shared_study):
    study = shared_study(arms=PAIR, rounds=2)
    found = replace(read_coevolution(study.plan, study.root), deviation=0.0123)
    said = dict(coevolution_notes(found))["G_0 on P_0, G_1 on P_1, G_2 on P_2"]
    assert "at most 0.012 from" in said


def test_diagonal_figure_that_a_round_did_not_score_is_no_zero(shared_study):
    study = shared_study(arms=PAIR, rounds=2)
    table = read_grids(study.plan, study.root)
    rows = tuple(
        replace(row, value=None, n_scored=0)
        if (row.generator, row.policy, row.metric) == ("G_1", "P_1", "r_disc")
        else row
        for row in table.rows
    )
    deviation = diagonal_deviation(study.plan, study.root, GridTable(rows, table.seeds))
    assert deviation == math.inf
    found = replace(read_coevolution(study.plan, study.root), deviation=deviation)
    said = dict(coevolution_notes(found))["G_0 on P_0, G_1 on P_1, G_2 on P_2"]
    assert "scored in one of the two alone" in said


@pytest.mark.parametrize(
    "options",
    [
        {"arms": PAIR, "rounds": 1},
        {"arms": ("coevolved", "static"), "rounds": 2},
        {"arms": ("stale", "frozen"), "rounds": 2},
    ],
)
def test_study_without_a_grid_says_what_one_takes_and_still_writes_its_files(
    fake_study, undrawn, options
):
    study = fake_study(**options)
    found = write_comparison(study.plan, study.questions, study.root, study.root / "results")
    assert found.coevolution.table == GridTable()
    assert (study.root / "results/grid.csv").read_text().count("\n") == 1  # the head alone
    assert {"grid.csv", "grid.png", "grid.svg"} <= {path.name for path in found.files}
    text = (study.root / "results/table.md").read_text()
    assert "no G x P grid" in text
    assert "a common first round and at least 2 rounds" in text
    assert "Each generator on" not in text


def test_grid_csv_has_the_tables_rows_with_their_counts(fake_study):
    study = fake_study(arms=PAIR, seeds=(1, 2), rounds=2)
    table = read_grids(study.plan, study.root)
    write_grid_csv(table, study.root / "results/grid.csv")
    with (study.root / "results/grid.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == [
        "seed", "generator", "policy", "metric", "value", "n_scored", "n_total"
    ]  # fmt: skip
    assert len(rows) == len(table.rows)
    for row in rows:
        own = table.at(int(row["seed"]), row["generator"], row["policy"], row["metric"])
        assert float(row["value"]) == own.value
        assert (int(row["n_scored"]), int(row["n_total"])) == (own.n_scored, own.n_total)


def test_missing_grids_are_all_named(fake_study):
    study = fake_study(write=False, arms=PAIR, seeds=(1, 2), rounds=2)
    for key in [*study.plan.starts, *study.plan.cells]:
        study.write_cell(key)
    assert missing_grids(study.plan, study.root) == ("s1", "s2")
    with pytest.raises(UserError, match="for s1, s2") as caught:
        compare_arms(study.plan, study.questions, study.root)
    assert "make reproduce" in str(caught.value)


@pytest.mark.parametrize("key", ["stale-s1-r2", "coevolved-s1-r1"])
def test_grid_of_a_cell_that_was_made_anew_is_refused_until_it_is_measured_again(fake_study, key):
    study = fake_study(arms=PAIR, rounds=2)
    study.write_cell(key, log=[{"reward": 0.7, "loss": 1.0, "kl": 0.1}])
    assert missing_grids(study.plan, study.root) == ("s1",)
    study.write_grids()
    assert missing_grids(study.plan, study.root) == ()


@pytest.mark.parametrize("name", ["metrics.json", "rubrics.parquet"])
def test_altered_grid_is_refused(fake_study, name):
    study = fake_study(arms=PAIR, rounds=2)
    path = study.root / planned_grids(study.plan)["s1"].directory / name
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content.replace(b"0.0", b"0.1") + b" ")
    with pytest.raises(UserError, match=name):
        read_coevolution(study.plan, study.root)


def test_grid_whose_figures_break_the_decomposition_is_refused(fake_study, monkeypatch):
    study = fake_study(write=False, arms=PAIR, rounds=2)
    for key in [*study.plan.starts, *study.plan.cells]:
        study.write_cell(key)
    monkeypatch.setattr("fakestudy._c_k", lambda cell: 2.0)
    study.write_grids()
    with pytest.raises(UserError, match=r"c_K r_disc - 2 r_dir - r_cov"):
        read_grids(study.plan, study.root)


def test_gaps_of_generators_on_the_same_responses_are_paired_by_prompt(shared_study):
    study = shared_study(arms=PAIR, seeds=(1, 2, 3), rounds=2)
    found = read_coevolution(study.plan, study.root)
    by_pair = {(one.arm, one.other): one for one in found.gaps}
    assert len(by_pair) == 9
    # The made-up generators differ by a constant on every rubric.
    for other, gap in {"G~_2": 0.01, "G_1": 0.015, "G_0": 0.035}.items():
        for policy in POLICIES:
            one = by_pair[f"G_2 on {policy}", f"{other} on {policy}"]
            assert one.mean == pytest.approx(gap)
            assert one.estimate.over == "seeds and prompts"
            assert one.rows == one.other_rows == (3 * 43, 3 * 48)
    expected = holm([one.estimate.p_value for one in found.gaps])
    assert [one.p_corrected for one in found.gaps] == list(expected)


def test_gain_under_each_generator_is_round_2_minus_round_1_of_its_arm(shared_study):
    study = shared_study(arms=PAIR, rounds=3)
    found = read_coevolution(study.plan, study.root)
    outcomes = compare_arms(study.plan, study.questions, study.root).outcomes
    gains = {one.arm: one.mean for one in found.gains}
    for generator, arm in {"G_2": "coevolved", "G~_2": "stale"}.items():
        after, before = (outcomes.at(arm, 1, t, "true_quality").value for t in (2, 1))
        assert gains[f"under {generator}"] == pytest.approx(after - before)
    (against,) = found.against
    assert against.mean == pytest.approx(gains["under G_2"] - gains["under G~_2"])
    pvalues = [one.estimate.p_value for one in (*found.gains, against)]
    assert [one.p_corrected for one in (*found.gains, against)] == list(holm(pvalues))


def test_generators_under_which_nothing_is_planned_are_named_with_the_arm_it_takes(shared_study):
    study = shared_study(arms=PAIR, rounds=2)
    found = read_coevolution(study.plan, study.root)
    assert found.not_planned == {"G_1": "it takes the arm once", "G_0": "it takes the arm reverted"}
    text = markdown(*_compared(study, found))
    assert "not there: it takes the arm once" in text


def test_each_arm_is_read_as_p_2_under_its_generator(shared_study):
    study = shared_study(arms=(*PAIR, "once", "reverted"), rounds=2)
    found = read_coevolution(study.plan, study.root)
    outcomes = compare_arms(study.plan, study.questions, study.root).outcomes
    gains = {one.arm: one.mean for one in found.gains}
    expected = {
        f"under {generator}": outcomes.at(arm, 1, 2, "true_quality").value
        - outcomes.at("coevolved", 1, 1, "true_quality").value
        for generator, arm in UNDER.items()
    }
    assert gains == pytest.approx(expected)
    assert len(set(gains.values())) == 4
    assert [one.other for one in found.against] == ["under G~_2", "under G_1", "under G_0"]
    assert found.not_planned == {}
    text = markdown(*_compared(study, found))
    assert "G\\_2 - G\\_0" in text
    assert "not there" not in text


def test_arm_with_another_first_round_is_not_read_as_p_2_under_its_generator(shared_study):
    study = shared_study(arms=(*PAIR, "once"), rounds=2)
    start, _, last = study.plan.paths["once", 1]
    paths = {**study.plan.paths, ("once", 1): (start, last, last)}
    found = read_coevolution(replace(study.plan, paths=paths), study.root)
    assert [one.arm for one in found.gains] == ["under G_2", "under G~_2"]
    assert found.not_planned["G_1"] == "once does not start from the P_1 of coevolved"


def test_arm_whose_second_round_is_under_another_generator_is_not_read_by_its_name(shared_study):
    study = shared_study(arms=(*PAIR, "once", "reverted"), rounds=2)
    paths = {**study.plan.paths, ("once", 1): study.plan.paths["reverted", 1]}
    found = read_coevolution(replace(study.plan, paths=paths), study.root)
    assert [one.arm for one in found.gains] == ["under G_2", "under G~_2", "under G_0"]
    assert "under another generator" in found.not_planned["G_1"]


def test_part_of_the_figure_is_read_where_a_seeds_grid_is_missing(fake_study):
    study = fake_study(arms=PAIR, seeds=(1, 2, 3), rounds=2)
    remove(study.root / planned_grids(study.plan)["s2"].directory)
    with pytest.raises(UserError, match="for s2"):
        read_coevolution(study.plan, study.root)
    found = read_coevolution(study.plan, study.root, partial=True)
    assert found.table.seeds == (1, 3)
    assert found.table == read_grids(study.plan, study.root, partial=True)
    assert {tuple(one.seed for one in gap.by_seed) for gap in found.gaps} == {(1, 3)}
    assert [one.seed for one in found.gains[0].by_seed] == [1, 2, 3]


@pytest.mark.parametrize("seed_of_stale", [1, 2])
def test_part_of_the_figure_is_read_where_cells_are_missing(fake_study, seed_of_stale):
    study = fake_study(arms=PAIR, seeds=(1, 2), rounds=2)
    gone = ("coevolved-s2-r1", f"stale-s{seed_of_stale}-r2")
    for key in gone:
        remove(study.root / study.plan.cell(key).directory)
    found = read_coevolution(study.plan, study.root, partial=True, without=gone)
    assert found.table.seeds == ((1,) if seed_of_stale == 2 else ())
    seeds = {one.arm: [row.seed for row in one.by_seed] for one in found.gains}
    assert seeds == {"under G_2": [1]} | ({"under G~_2": [1]} if seed_of_stale == 2 else {})


def _compared(study, found):
    compared = compare_arms(study.plan, study.questions, study.root)
    return compared.outcomes, compared.differences, compared.questions, found


@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)])
def test_console_of_80_columns_shows_the_figure_and_cuts_nothing(shared_study, seeds):
    study = shared_study(arms=PAIR, seeds=seeds, rounds=2)
    found = read_coevolution(study.plan, study.root)
    stream = io.StringIO()
    Console(file=stream, width=80).print(console(*_compared(study, found)))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in stream.getvalue()
    mean = found.table.mean("G~_2", "P_1", "delta_gap")
    assert any("G~_2 on P_1" in line and f"{mean:.3f}" in line for line in lines)
    assert any("P_1 -> P_2 under" in line for line in lines)


def test_heat_map_writes_every_mean_in_its_field(shared_study):
    study = shared_study(arms=PAIR, rounds=2)
    table = read_grids(study.plan, study.root)
    figure = heat_map(table)
    assert len(figure.axes) == len(PANELS)
    assert texts(figure) == [
        f"{table.mean(generator, policy, metric):.3f}"
        for metric in PANELS
        for generator in GENERATORS
        for policy in POLICIES
    ]


def test_panel_of_equal_values_is_dark_with_white_writing(shared_study):
    study = shared_study(arms=PAIR, rounds=2)  # the made-up ranks are all alike
    panel = heat_map(read_grids(study.plan, study.root)).axes[PANELS.index("rank_accuracy")]
    assert {text.get_color() for text in panel.texts} == {"white"}
    (image,) = panel.images
    assert image.to_rgba(image.get_array())[..., :3].max() < 0.5


def test_heat_map_of_three_seeds_has_standard_errors_and_of_two_has_none(shared_study):
    study = shared_study(arms=PAIR, seeds=(1, 2, 3), rounds=2)
    table = read_grids(study.plan, study.root)
    error = table.standard_error("G_0", "P_0", "delta_gap")
    assert error is not None
    assert texts(heat_map(table))[0].endswith(f"± {error:.3f}")
    two = GridTable(tuple(row for row in table.rows if row.seed < 3), (1, 2))
    assert two.standard_error("G_0", "P_0", "delta_gap") is None
    assert not any("±" in text for text in texts(heat_map(two)))


def test_field_without_a_value_with_one_seed_has_no_mean_and_is_drawn_as_a_dash(shared_study):
    study = shared_study(arms=PAIR, seeds=(1, 2, 3), rounds=2)
    table = read_grids(study.plan, study.root)
    gone = table.rows.index(table.at(2, "G_1", "P_0", "delta_gap"))
    rows = list(table.rows)
    rows[gone] = replace(rows[gone], value=None, n_scored=0)
    holed = GridTable(tuple(rows), table.seeds)
    assert holed.mean("G_1", "P_0", "delta_gap") is None
    assert holed.standard_error("G_1", "P_0", "delta_gap") is None
    assert texts(heat_map(holed))[3] == ROUND_METRICS["delta_gap"].show(None)


def test_pictures_of_the_grid_are_whole_and_drawn_the_same_twice(fake_study):
    study = fake_study(arms=PAIR, rounds=2)
    table = read_grids(study.plan, study.root)
    contents = []
    for name in ("one", "two"):
        png, svg = draw_grid(table, study.root / name / "grid.png", "PARTIAL")
        ElementTree.parse(svg)
        assert "<!-- PARTIAL; 1 seed" in svg.read_text()
        contents.append(svg.read_bytes())
        assert png.read_bytes().startswith(b"\x89PNG")
    assert contents[0] == contents[1]
