from __future__ import annotations

import base64
import csv
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from dynamicrubric.errors import UserError
from dynamicrubric.grid import NEEDS
from dynamicrubric.report import write_comparison
from dynamicrubric.report.cellfiles import GAP_PARTS, ORDER_METRICS, load_cell
from dynamicrubric.report.celltables import read_tables
from dynamicrubric.report.differences import corrected, paired_differences
from dynamicrubric.report.findings import FINDINGS
from dynamicrubric.report.lines import strong_arms
from dynamicrubric.report.page import STYLE, TEMPLATES, content_policy
from dynamicrubric.report.words import answers

HOSTILE = (
    "<script>alert(1)</script> \"'><img src=http://x.example/a.png onerror=1> {{ 7*7 }} \u202e"
)
TWO = ("coevolved", "static")
NOTHING_SCORED = {"value": None, "n_scored": 0, "n_total": 48}


class Page(HTMLParser):
    """Tags, attributes and text of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data

    def values(self, *names):
        return [value for _, name, value in self.attributes if name in names]


def written(study, results, **options):
    return write_comparison(study.plan, study.questions, study.root, results, **options)


def page_of(found) -> Page:
    return Page((found.report / "index.html").read_text(encoding="utf-8"))


def rows_of(found, name):
    with (found.report / "tables" / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory):
    """A whole study of one seed, its report, and what its models wrote."""
    study = _study(tmp_path_factory, rounds=1)
    for key in ("static-s1-r1", "coevolved-s1-r1"):
        study.write_cell(key, text=HOSTILE, criterion=HOSTILE)
    return study, written(study, study.root / "results")


@pytest.fixture(scope="module")
def three_seeds(tmp_path_factory, without_pictures):
    """A whole study of three seeds and its report."""
    study = _study(tmp_path_factory, rounds=1, seeds=(1, 2, 3))
    with without_pictures():
        return study, written(study, study.root / "results")


def _study(tmp_path_factory, arms=TWO, **options):
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent))
    from fakestudy import FakeStudy

    return FakeStudy(tmp_path_factory.mktemp("study") / "project", arms=arms, **options)


def test_page_shows_model_text_as_text_alone(one_seed):
    page = page_of(one_seed[1])
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }} <U+202E>" in page.text
    assert "\u202e" not in page.text
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def test_page_asks_nothing_of_a_network(one_seed):
    page = page_of(one_seed[1])
    sources = page.values("src", "href", "srcset", "data", "action", "poster", "xlink:href")
    assert sources
    assert all(value.startswith(("data:image/", "#")) for value in sources)
    assert {"link", "script", "iframe", "object", "base", "form"} & set(page.tags) == set()
    assert "url(" not in (TEMPLATES / STYLE).read_text()
    assert "@import" not in (TEMPLATES / STYLE).read_text()


def test_page_forbids_all_but_data_images_and_its_own_style(one_seed):
    text = (one_seed[1].report / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    policy = next(value for value in page.values("content") if "default-src" in value)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert policy == content_policy(style)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert page.values("style") == []  # the policy would drop them


def test_page_links_lead_to_sections(one_seed):
    page = page_of(one_seed[1])
    anchors = {value[1:] for value in page.values("href")}
    assert anchors
    assert anchors <= set(page.values("id"))


def test_page_of_one_seed_says_that_it_is_over_prompts_only(one_seed):
    page = page_of(one_seed[1])
    assert "over prompts only: 24 prompts of 1 seed" in page.text
    assert "With 1 seed this says nothing about other seeds: that takes 3." in page.text
    assert "open: 1 seed" in page.text
    rows = rows_of(one_seed[1], "curves")
    assert {row["over"] for row in rows if row["low"]} == {"prompts"}


def test_page_of_three_seeds_has_intervals_over_them(three_seeds):
    page = page_of(three_seeds[1])
    assert "over 3 seeds and 24 prompts" in page.text
    assert "over prompts only" not in page.text
    rows = rows_of(three_seeds[1], "curves")
    assert {row["over"] for row in rows} == {"seeds"}
    assert {row["seeds"] for row in rows} == {"1 2 3"}


def test_curve_means_are_those_of_the_outcome_table(three_seeds):
    found = three_seeds[1]
    for row in rows_of(found, "curves"):
        expected = found.outcomes.mean(row["arm"], int(row["round"]), row["metric"])
        assert float(row["mean"]) == pytest.approx(expected)
        assert float(row["low"]) <= expected <= float(row["high"])


def test_findings_are_all_listed_and_those_not_run_say_so(three_seeds):
    rows = rows_of(three_seeds[1], "findings")
    assert [row["arm"] for row in rows] == list(FINDINGS)
    status = {row["arm"]: row["status"] for row in rows}
    assert status["static"] == "held here"  # the made-up arms differ by 0.08
    assert {status[arm] for arm in FINDINGS if arm != "static"} == {"not run"}


def test_arms_without_a_difference_are_not_called_equal(tmp_path_factory, undrawn):
    study = _study(tmp_path_factory, rounds=1, seeds=(1, 2, 3))
    for seed in (1, 2, 3):
        study.write_cell(f"static-s{seed}-r1", quality_shift=0.08)  # as high as coevolved
    found = written(study, study.root / "results")
    text = page_of(found).text
    assert "No difference shown in true quality in round 1" in text
    assert {row["arm"]: row["status"] for row in rows_of(found, "findings")}["static"] == (
        "not shown"
    )


@pytest.mark.parametrize(("seeds", "label"), [((1,), "open: 1 seed"), ((1, 2), "open: 2 seeds")])
def test_fewer_than_three_seeds_leave_the_question_open_and_colour_nothing(
    tmp_path_factory, undrawn, seeds, label
):
    study = _study(tmp_path_factory, rounds=1, seeds=seeds)
    found = written(study, study.root / "results")
    (one,) = [one for one in found.differences if one.metric == "true_quality"]
    assert one.p_corrected < 0.001  # over prompts alone it is beyond doubt
    status = {row["arm"]: row["status"] for row in rows_of(found, "findings")}
    assert status["static"] == label
    assert {row["shows"] for row in rows_of(found, "differences")} == {label}
    page = page_of(found)
    assert label in page.text
    assert not [name for name in page.values("class") if name in ("badge good", "badge bad")]
    low, high = one.estimate.interval
    assert f"95 % interval {low:+.3f} to {high:+.3f} over prompts only: 24 prompts" in page.text


def test_a_wider_gap_is_called_higher_and_has_no_colour(shared_study):
    study = shared_study(arms=TWO, rounds=1, seeds=(1, 2, 3))
    for metric, tone in (("true_quality", "good"), ("delta_gap", "")):
        found = paired_differences(study.plan, study.root, arm="coevolved", metric=metric)
        found = [replace(found[0], mean=0.1, estimate=replace(found[0].estimate, p_value=0.001))]
        (one,) = answers(corrected(found, lambda _: "a family"))
        assert (one.verdict, one.tone) == ("higher", tone)
        assert "better" not in one.text
        assert f"coevolved is higher on {100 * found[0].estimate.superiority:.0f} %" in one.text


def test_page_says_why_a_gap_is_neither_good_nor_bad(one_seed):
    assert "A Δ gap is measured on each arm's own responses" in page_of(one_seed[1]).text


def test_findings_say_what_the_paper_measured_beside_what_is_expected_here(one_seed):
    text = page_of(one_seed[1]).text
    assert "What the paper's findings lead one to expect" in text
    for claim in FINDINGS.values():
        assert claim.here in text
        assert claim.paper in text
    kinds = {arm: claim.paper.split(":")[0] for arm, claim in FINDINGS.items()}
    evaluators = ("frozen", "stale", "disc_only", "anchor_only")
    assert {kinds[arm] for arm in evaluators} == {"The paper compared evaluators"}
    assert {kinds[arm] for arm in ("static", "once")} == {"The paper compared policies"}
    assert FINDINGS["stale"].in_grid
    assert "#coevolution" in page_of(one_seed[1]).values("href")


def test_responses_come_with_each_items_verdict_and_weight(one_seed):
    rows = [row for row in rows_of(one_seed[1], "responses") if row["arm"] == "static"]
    most = [row for row in rows if row["end"] == "most"]
    least = [row for row in rows if row["end"] == "least"]
    assert {float(row["score"]) for row in most} == {5 / 6}
    assert {float(row["score"]) for row in least} == {3 / 6}
    assert [(row["weight"], row["verdict"]) for row in least[:3]] == [
        ("3", "yes"), ("2", "no"), ("1", "no")
    ]  # fmt: skip


def test_rubric_table_counts_items_that_all_or_none_meet(one_seed):
    for row in rows_of(one_seed[1], "rubrics"):
        assert float(row["all_meet"]) == pytest.approx(1 / 3)
        assert float(row["none_meet"]) == pytest.approx(1 / 3)
        assert float(row["entropy_bits"]) == pytest.approx(1.584962500721156)
        assert (row["valid_rubrics"], row["sets"], row["items"]) == ("43", "48", "129")


def test_cost_counts_steps_and_verdicts_and_leaves_out_what_is_not_recorded(one_seed):
    study, found = one_seed
    costs = {row["arm"]: row for row in rows_of(found, "costs")}
    recipe = study.plan.cell("coevolved-s1-r1").recipe
    training, policy = recipe.generator_training, recipe.policy_training
    rubrics = training.steps * training.prompts_per_step * training.group_size
    responses = policy.steps * policy.prompts_per_step * recipe.responses_per_set
    assert float(costs["coevolved"]["steps"]) == training.steps + policy.steps
    assert float(costs["coevolved"]["verdicts"]) == rubrics * 3 * (3 + 7) + responses * 2
    assert float(costs["static"]["verdicts"]) == rubrics * 3 * (7 + 7) + responses * 2
    assert costs["coevolved"]["tokens"] == ""  # made-up rounds keep no tokenizer
    assert "rule_based, the yardstick" in page_of(found).text


@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)])
def test_arm_without_rubrics_shows_dashes_and_no_number(tmp_path_factory, undrawn, seeds):
    study = _study(tmp_path_factory, rounds=1, seeds=seeds)
    nothing = dict.fromkeys((*GAP_PARTS, *ORDER_METRICS), NOTHING_SCORED)
    nothing |= {"items_per_rubric": NOTHING_SCORED, "valid_rubric_rate": NOTHING_SCORED}

    def no_rubrics(tables):
        tables["verdicts"].clear()
        for row in tables["responses"]:
            row["score"] = None
        for row in tables["rubrics"]:
            row |= dict.fromkeys(("valid", "text", "num_items", *GAP_PARTS, *ORDER_METRICS))

    for seed in seeds:
        study.write_cell(f"static-s{seed}-r1", metrics=nothing, alter=no_rubrics)
    found = written(study, study.root / "results")
    text = page_of(found).text
    assert "No response of this arm has a rubric score." in text
    named = "seed 1" if seeds == (1,) else "seeds 1, 2 and 3"
    said = (
        f"No prompt of {named} is scored for both in Δ gap in round 1, so there is no difference."
    )
    assert said in text
    for row in rows_of(found, "curves"):
        if (row["arm"], row["round"], row["metric"]) == ("static", "1", "tie_rate"):
            assert (row["mean"], row["low"], row["n_scored"]) == ("", "", "0")
    (use,) = [r for r in rows_of(found, "rubrics") if (r["arm"], r["round"]) == ("static", "1")]
    assert (use["entropy_bits"], use["all_meet"], use["sets"]) == ("", "", "0")


def test_unfinished_study_is_refused_with_every_missing_and_damaged_cell(tmp_path_factory):
    study = _study(tmp_path_factory, rounds=2)
    missing, damaged = _break(study)
    with pytest.raises(UserError) as error:
        written(study, study.root / "results")
    for key in (*missing, *damaged):
        assert key in str(error.value)
    assert "static-s1-r0" not in str(error.value)
    assert "--partial" in str(error.value)
    assert not (study.root / "results").exists()


def test_partial_report_draws_the_rest_and_is_marked_everywhere(tmp_path_factory):
    study = _study(tmp_path_factory, rounds=2)
    missing, damaged = _break(study)
    found = written(study, study.root / "results", partial=True)
    mark = f"PARTIAL: {len(missing) + len(damaged)} cells missing or damaged"
    page = page_of(found)
    assert page.text.index(mark) < page.text.index("What the paper's findings")
    for key in (*missing, *damaged):
        assert key in page.text
    assert (study.root / "results" / "table.md").read_text().splitlines()[2].startswith(f"**{mark}")
    pictures = [*found.report.glob("plots/*.svg"), study.root / "results" / "study.svg"]
    assert len(pictures) > 7
    assert all(f"<!-- {mark}" in picture.read_text() for picture in pictures)
    drawn = {(row["arm"], row["round"]) for row in rows_of(found, "curves")}
    assert drawn == {("static", "0"), ("static", "2"), ("coevolved", "0"), ("coevolved", "2")}


def _break(study):
    """Take one cell away, cut one's table short and alter another's figures."""
    from tasks.disk import remove

    remove(study.root / study.plan.cell("coevolved-s1-r1").directory)
    study.write_cell("static-s1-r1", alter=lambda tables: tables["responses"].pop())
    return ["coevolved-s1-r1"], ["static-s1-r1"]


@pytest.fixture(scope="module")
def grids(tmp_path_factory, without_pictures):
    """A study with a grid for each of two seeds, and its report."""
    study = _study(tmp_path_factory, arms=("coevolved", "stale"), rounds=2, seeds=(1, 2))
    with without_pictures():
        return study, written(study, study.root / "results")


def test_co_evolution_has_a_section_with_its_heat_map_and_a_link_to_it(grids):
    found = grids[1]
    page, text = page_of(found), (found.report / "index.html").read_text(encoding="utf-8")
    assert "#coevolution" in page.values("href")
    section = text[
        text.index('<section id="coevolution">') : text.index('<section id="responses">')
    ]
    svg = base64.b64encode((found.report / "plots" / "grid.svg").read_bytes()).decode()
    assert svg in section
    # What the paper says of the two halves, and both halves' tables.
    said = "The difference in Δ gap in round 1, G_2 on P_1 minus G~_2 on P_1, is +0.010"
    assert said in section
    assert "P_2 was trained under G_2, so on P_2&#39;s responses G_2 is the judge" in section
    assert "P_2 under G~_2" in section
    assert "Each generator on each policy&#39;s held-out responses, mean of 2 seeds" in section
    assert "P_1 -&gt; P_2 under: gain in true quality" in section
    assert "it takes the arm once" in section


def test_co_evolution_tables_are_the_figures_of_the_comparison(grids):
    found = grids[1]
    rows = rows_of(found, "grid")
    table = found.coevolution.table
    assert len(rows) == len(table.rows) == 2 * 4 * 3 * 8
    for row in rows:
        own = table.at(int(row["seed"]), row["generator"], row["policy"], row["metric"])
        assert (float(row["value"]), int(row["n_scored"])) == (own.value, own.n_scored)
    compared = rows_of(found, "coevolution")
    expected = [*found.coevolution.gaps, *found.coevolution.gains, *found.coevolution.against]
    assert [float(row["mean"]) for row in compared] == [one.mean for one in expected]
    assert {row["seeds"] for row in compared} == {"2"}


def test_co_evolution_without_a_grid_says_what_one_takes_and_draws_none(one_seed):
    found = one_seed[1]
    assert f"This plan has no G x P grid: it takes {NEEDS}." in page_of(found).text
    assert not (found.report / "plots" / "grid.svg").exists()
    assert rows_of(found, "grid") == []


def _remove_grid(folder):
    from tasks.disk import remove

    remove(folder)


def _cut_grid(folder):
    path = folder / "rubrics.parquet"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-9])


def _break_grid_record(folder):
    path = folder / "record.json"
    path.unlink()
    path.write_text("{")


@pytest.mark.parametrize("harm", [_remove_grid, _cut_grid, _break_grid_record])
def test_study_without_a_whole_grid_is_refused_or_drawn_as_partial_without_it(
    tmp_path_factory, undrawn, harm
):
    study = _study(tmp_path_factory, arms=("coevolved", "stale"), rounds=2, seeds=(1, 2))
    harm(study.root / "data" / "grid" / "s2")
    with pytest.raises(UserError, match="grid@s2") as error:
        written(study, study.root / "results")
    assert "grid@s1" not in str(error.value)
    found = written(study, study.root / "results", partial=True)
    assert found.mark == "PARTIAL: 1 grid missing or damaged; not a finished study"
    assert [(fault.key, fault.kind) for fault in found.faults] == [("grid@s2", "grid")]
    assert found.coevolution.table.seeds == (1,)
    text = page_of(found).text
    assert "G x P grids left out" in text and "missing or damaged: grid@s2" in text
    assert found.outcomes.missing == frozenset()


def test_grid_of_a_missing_cell_is_named_with_it_and_not_called_unplanned(
    tmp_path_factory, undrawn
):
    from tasks.disk import remove

    study = _study(tmp_path_factory, arms=("coevolved", "stale"), rounds=2)
    remove(study.root / study.plan.cell("stale-s1-r2").directory)
    found = written(study, study.root / "results", partial=True)
    assert found.mark.startswith("PARTIAL: 1 cell and 1 grid missing or damaged")
    text = page_of(found).text
    assert "it is made of cells that are not there: stale-s1-r2" in text
    assert "The G x P grid of this plan is missing or damaged." in text
    assert "cells of stale are missing or damaged" in text
    assert "This plan has no G x P grid" not in text


def test_questions_are_those_of_arms_that_were_run(one_seed, undrawn):
    study, _ = one_seed
    questions = study.questions | {"oracle": "How far could any evaluator get?"}
    found = write_comparison(study.plan, questions, study.root, study.root / "more")
    assert "How far could any evaluator get?" not in page_of(found).text
    assert study.questions["static"] in page_of(found).text


def test_whole_report_is_not_marked(one_seed):
    study, found = one_seed
    assert found.mark == ""
    assert "PARTIAL" not in (found.report / "index.html").read_text(encoding="utf-8")
    assert "PARTIAL" not in (study.root / "results" / "table.md").read_text()


def test_partial_report_of_nothing_is_refused(tmp_path_factory):
    study = _study(tmp_path_factory, rounds=1, write=False)
    with pytest.raises(UserError, match="none of 4 cells"):
        written(study, study.root / "results", partial=True)


def _double(tables):
    tables["responses"].append(tables["responses"][0])


def _drop_verdict(tables):
    tables["verdicts"].pop()


def _odd_verdict(tables):
    tables["verdicts"][0]["verdict"] = "maybe"


def _gap(tables):
    tables["rubrics"][0]["r_cov"] += 0.01


def _bound(tables):
    tables["rubrics"][0]["tie_rate"] = 1.5


def _score(tables):
    tables["responses"][0]["score"] = 1.5


def _mean(tables):
    tables["responses"][0]["true_quality"] += 0.5


def _rubric(tables):
    tables["rubrics"].pop()


def _no_rubrics(tables):
    tables["rubrics"].clear()


def _no_responses(tables):
    tables["responses"].clear()


def _no_kl(tables):
    for row in tables["responses"]:
        del row["kl"]


@pytest.mark.parametrize(
    ("alter", "complaint"),
    [
        (_double, "24 prompts x 2 sets x 3 responses"),
        (_drop_verdict, "386 rows; expected 387: items x K"),
        (_odd_verdict, "maybe"),
        (_gap, "c_K r_disc"),
        (_bound, "tie_rate from"),
        (_score, "a score of 1.5"),
        (_mean, "mean true_quality"),
        (_rubric, "48, one a response set"),
        (_no_rubrics, "rubrics.parquet of the cell static-s1-r1: got an empty table without"),
        (_no_responses, "responses.parquet of the cell static-s1-r1: got an empty table without"),
        (_no_kl, "a table without the columns kl"),
    ],
)
def test_broken_identity_is_refused_and_names_the_cell(fake_study, alter, complaint):
    study = fake_study(write=False)
    study.write_cell("static-s1-r1", alter=alter)
    with pytest.raises(UserError) as error:
        read_tables(study.plan, load_cell(study.root, study.plan.cell("static-s1-r1")))
    assert complaint in str(error.value)
    assert "static-s1-r1" in str(error.value)


def test_arms_with_other_seeds_and_rounds_are_each_drawn_as_far_as_they_go(
    tmp_path_factory, undrawn
):
    study = _study(tmp_path_factory, rounds=2, seeds=(1, 2, 3))
    paths = {
        (arm, seed): keys if arm == "coevolved" else keys[:2]
        for (arm, seed), keys in study.plan.paths.items()
        if (arm, seed) != ("static", 3)
    }
    plan = replace(study.plan, paths=paths)
    found = write_comparison(plan, study.questions, study.root, study.root / "results")
    assert {one.round for one in found.differences} == {1}
    assert "Seed 3 left out: only coevolved has it." in page_of(found).text
    ends = {row["arm"]: row for row in rows_of(found, "curves")}
    assert (ends["coevolved"]["round"], ends["coevolved"]["seeds"]) == ("2", "1 2 3")
    assert (ends["static"]["round"], ends["static"]["seeds"]) == ("1", "1 2")


def test_strong_arms_of_a_large_study_are_those_of_the_findings():
    arms = ["coevolved", *(f"other{n}" for n in range(10)), *FINDINGS]
    assert strong_arms(arms) == ("coevolved", *FINDINGS)
    assert strong_arms(arms[1:11]) == tuple(arms[1:8])


def test_report_is_the_same_bytes_twice(one_seed, tmp_path):
    study, found = one_seed
    again = written(study, tmp_path)
    assert [path.read_bytes() for path in found.files] == [
        path.read_bytes() for path in again.files
    ]
    for path in sorted(found.report.rglob("*.*")):
        assert path.read_bytes() == (again.report / path.relative_to(found.report)).read_bytes()
