from __future__ import annotations

import io
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from ruamel.yaml import YAML

from dynamicrubric.metrics import ROUND_METRICS
from dynamicrubric.report import compare_arms, console, draw_study, markdown
from dynamicrubric.report.cellfiles import load_cell
from dynamicrubric.report.lines import COLOURS, OTHERS_COLOUR, spread, strong_arms
from dynamicrubric.report.outcomes import Outcome, OutcomeTable
from dynamicrubric.report.picture import study_figure
from dynamicrubric.report.samples import rubric_samples
from dynamicrubric.report.text import markdown_block, markdown_inline

ODD = 'Score > 90% | "quoted" ../x [red]loud[/red] $x$ `a` ``` <script>x</script> \x1b[31m\u202e'


def _printed(found, width: int, *, brief: bool = False) -> str:
    stream = io.StringIO()
    shown = console(found.outcomes, found.differences, found.questions, brief=brief)
    Console(file=stream, width=width).print(shown)
    return stream.getvalue()


def test_console_table_of_80_columns_cuts_nothing(shared_study):
    study = shared_study()
    text = _printed(compare_arms(study.plan, study.questions, study.root), width=80)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    for arm, question in study.questions.items():
        assert f"{arm}: {question}"[:60] in text


def test_what_a_study_ends_with_fits_a_page_and_has_figures_differences_and_questions(
    shared_study,
):
    study = shared_study()
    found = compare_arms(study.plan, study.questions, study.root)
    text, whole = _printed(found, width=80, brief=True), _printed(found, width=80)
    assert len(text.splitlines()) < 50 < len(whole.splitlines())
    for title in ("True quality by round", "Δ gap by round", "Paired differences by prompt"):
        assert title in text
    for arm, question in study.questions.items():
        assert f"{arm}: {question}"[:60] in text
    assert "1 seed: differences say nothing about what another seed would give" in text


def test_console_table_says_how_many_seeds_and_what_was_not_scored(shared_study):
    study = shared_study(seeds=(1, 2, 3), arms=("coevolved", "stale"), rounds=2)
    text = _printed(compare_arms(study.plan, study.questions, study.root), width=120)
    assert "mean of 3 seeds" in text
    assert "over 3 seeds" in text
    assert "stale, not all scored: 129/144 of Δ gap" in text
    assert "significant" not in text


def test_console_table_says_how_sure_each_difference_is(shared_study):
    study = shared_study(seeds=(1, 2, 3), arms=("coevolved", "stale"), rounds=2)
    found = compare_arms(study.plan, study.questions, study.root)
    text = _printed(found, width=120)
    for one in found.differences:
        (row,) = [
            line.replace("│", " ").split()
            for line in text.split(one_title(one.metric))[1].splitlines()
            if line.startswith("│stale")
        ][:1]
        low, high = one.estimate.interval
        assert row[:3] == ["stale", f"{low:+.4f}", f"{high:+.4f}"]
        assert row[3:6] == ["seeds", "and", "prompts"]
        assert row[-2:] == [f"{100 * one.estimate.superiority:.0f}", "%"]
    assert "p Holm: p corrected by Holm, over the comparisons of its table that have a p" in text
    assert "1 comparison, the arms of the paper's findings in true quality" in " ".join(
        text.split()
    )
    assert [line.replace("│", " ").split() for line in text.splitlines() if "432/432" in line] == [
        ["stale", "true", "quality", "3", "24/24", "432/432", "432/432"]
    ]


def one_title(metric: str) -> str:
    title = {"true_quality": "True quality", "delta_gap": "Δ gap"}[metric]
    return f"{title} in round 2, coevolved minus another arm"


def test_console_table_of_fewer_than_three_seeds_says_that_no_interval_is_over_seeds(shared_study):
    study = shared_study(seeds=(1, 2), arms=("coevolved", "stale"), rounds=1)
    text = _printed(compare_arms(study.plan, study.questions, study.root), width=120)
    assert "no interval over seeds with 2 seeds: it takes 3" in text
    assert "seeds and prompts" not in text


def test_console_table_says_why_a_difference_has_no_interval(shared_study):
    study = shared_study(arms=("coevolved", "frozen"), rounds=1, prompts=12)
    found = compare_arms(study.plan, study.questions, study.root)
    text = _printed(found, width=120)
    (mean,) = [one.mean for one in found.differences if one.metric == "true_quality"]
    assert (
        "coevolved - frozen, true quality: no interval. In true quality in round 1 both are scored "
        "on only 12 prompts of seed 1, and an interval takes 20: the mean difference of "
        f"{mean:+.3f} stands alone."
    ) in " ".join(text.split())


def test_console_table_of_long_arm_names_and_five_seeds_cuts_no_evidence(shared_study):
    study = shared_study(seeds=(1, 2, 3, 4, 5), arms=("coevolved", "frozen"), rounds=1)
    found = compare_arms(study.plan, study.questions, study.root)
    long = tuple(replace(one, other="failing_verifier") for one in found.differences)
    text = _printed(replace(found, differences=long), width=80)
    evidence = text[text.index("minus another arm") :]
    assert "…" not in evidence
    assert evidence.count("failing_verifier") == 4


def test_console_table_shows_markup_in_a_question_as_text(shared_study):
    study = shared_study(arms=("coevolved", "stale"), rounds=1)
    found = compare_arms(study.plan, {"stale": "is [red]this[/red] read?"}, study.root)
    assert "[red]this[/red]" in _printed(found, width=120)


def test_markdown_table_has_whole_rows_whatever_a_question_says(shared_study):
    study = shared_study(arms=("coevolved", "stale"), rounds=1)
    found = compare_arms(study.plan, {"stale": ODD}, study.root)
    text = markdown(found.outcomes, found.differences, found.questions)
    assert "<script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("| coevolved |")]
    assert len(rows) == 5  # two by round, three of the last one


@given(st.text())
def test_markdown_block_is_not_left_by_any_text(text):
    fence, *_, last = markdown_block(text).split("\n")
    inside = markdown_block(text).split("\n")[1:-1]
    assert last == fence.removesuffix("text")
    assert not any(line.strip().startswith(last) for line in inside)


@given(st.text())
def test_markdown_inline_stays_one_line_without_tags(text):
    line = markdown_inline(text)
    assert len(line.splitlines()) <= 1
    assert "<" not in line
    assert ">" not in line


def test_rubric_samples_show_odd_text_as_a_block(fake_study):
    study = fake_study(write=False)
    study.write_cell("frozen-s1-r1", rubric_texts=[ODD])
    text = rubric_samples(load_cell(study.root, study.plan.cell("frozen-s1-r1")))
    assert "## Invalid (5 of 48)" in text
    assert "````text" in text
    assert "\x1b" not in text


def test_picture_is_png_and_svg_with_every_arm_named(shared_study, tmp_path):
    study = shared_study(seeds=(1, 2), rounds=1)
    table = compare_arms(study.plan, study.questions, study.root).outcomes
    png, svg = draw_study(table, tmp_path / "new" / "study.png", "PARTIAL")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    comments = svg.read_text()
    assert all(f"<!-- {arm}" in comments for arm in table.arms)
    assert "<!-- PARTIAL; 2 seeds: thin lines" in comments
    ElementTree.parse(svg)


def test_picture_of_odd_arm_names_and_missing_values_is_drawn(shared_study, tmp_path):
    study = shared_study(arms=("coevolved", "frozen"), rounds=1)
    table = compare_arms(study.plan, study.questions, study.root).outcomes
    rows = tuple(
        replace(row, arm=ODD if row.arm == "frozen" else row.arm,
                value=None if row.metric == "delta_gap" else row.value)
        for row in table.rows
    )  # fmt: skip
    odd = replace(table, rows=rows, arms=("coevolved", ODD))
    _, svg = draw_study(odd, tmp_path / "study.png")
    ElementTree.parse(svg)


def _table(arms):
    """A table of two seeds and rounds in which each arm's figures grow with its place."""
    rows = tuple(
        Outcome(arm, seed, number, metric, 0.5 + 0.01 * place * number + 0.001 * seed, 9, 9)
        for place, arm in enumerate(arms)
        for seed in (1, 2)
        for number in (0, 1)
        for metric in ROUND_METRICS
    )
    return OutcomeTable(rows, tuple(arms), (1, 2), 1)


def test_picture_of_many_arms_colours_those_of_the_findings_and_greys_the_rest(params_text):
    arms = list(YAML(typ="safe").load(params_text)["study"]["arms"])
    assert len(arms) == 21
    for panel in study_figure(_table(arms)).axes:
        colours = [line.get_color() for line in panel.lines]
        # One line an arm, no seeds, no colour twice.
        assert len(colours) == len(arms)
        assert colours.count(OTHERS_COLOUR) == len(arms) - 7
        assert sorted({*colours} - {OTHERS_COLOUR}) == sorted(COLOURS)
        assert {text.get_text().split()[0] for text in panel.texts} == {*strong_arms(arms)}
        assert [text.get_text() for text in panel.get_legend().get_texts()] == [
            "14 other arms, in the report"
        ]


def test_picture_of_few_arms_has_a_line_a_seed_and_no_legend():
    for panel in study_figure(_table(["coevolved", "stale", "static"])).axes:
        assert len(panel.lines) == 3 * (1 + 2)
        assert panel.get_legend() is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.2))
def test_spread_labels_keep_their_order_and_distance(places, gap):
    moved = spread(places, gap)
    order = sorted(range(len(places)), key=lambda n: places[n])
    for before, after in pairwise(order):
        assert moved[after] - moved[before] >= gap - 1e-9
    assert sum(moved) == pytest.approx(sum(places), abs=1e-6)


def test_import_of_the_report_loads_nothing_heavy():
    code = (
        "import sys, dynamicrubric.report\n"
        "heavy = {'torch', 'pandas', 'matplotlib', 'pyarrow', 'mlflow', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
