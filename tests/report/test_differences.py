from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dynamicrubric.config import Selection
from dynamicrubric.errors import UserError
from dynamicrubric.report import collect_outcomes, compare_arms, paired_differences
from dynamicrubric.report.cellfiles import Measured
from dynamicrubric.report.differences import ArmValues, Family, compare_values, pair
from dynamicrubric.report.evidence import evidence_grids, evidence_notes, no_interval
from dynamicrubric.report.pagetables import evidence_tables
from dynamicrubric.stats import holm


def test_pair_standard_error_equals_numpy_over_prompts():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=40), rng.normal(size=40)
    found = pair(
        1, {str(n): x for n, x in enumerate(first)}, {str(n): x for n, x in enumerate(second)}
    )
    gaps = first - second
    assert found.mean == pytest.approx(gaps.mean())
    assert found.standard_error == pytest.approx(gaps.std(ddof=1) / np.sqrt(40))


def test_pair_of_arms_that_differ_by_a_constant_has_no_spread():
    values = {str(n): n / 40 for n in range(40)}
    found = pair(1, {prompt: value + 0.01 for prompt, value in values.items()}, values)
    assert found.mean == pytest.approx(0.01)
    assert found.standard_error == pytest.approx(0.0, abs=1e-12)


def test_pair_with_unscored_prompts_uses_those_scored_in_both_and_counts_them():
    first = {str(n): 0.5 for n in range(30)} | {"0": None}
    second = {str(n): 0.4 for n in range(30)} | {"1": None}
    found = pair(1, first, second)
    assert (found.n_prompts, found.n_prompts_total) == (28, 30)


def test_pair_with_few_prompts_has_no_standard_error():
    values = {str(n): n / 19 for n in range(19)}
    assert pair(1, values, values).standard_error is None


def test_pair_with_other_prompts_is_refused():
    with pytest.raises(UserError, match="'b'"):
        pair(1, {"a": 0.1}, {"a": 0.1, "b": 0.2})


def test_differences_do_not_shrink_when_samples_are_copied(shared_study):
    # 24 prompts stay 24 clusters, however many responses each has.
    study = shared_study(prompts=24, arms=("coevolved", "static"), rounds=1)
    (found, *_) = paired_differences(study.plan, study.root, arm="coevolved")
    assert found.by_seed[0].n_prompts == 24
    assert found.note == "over 24/24 prompts"


def test_differences_of_a_cell_with_itself_are_no_measurement(shared_study):
    study = shared_study(arms=("coevolved", "stale", "frozen"), seeds=(1, 2, 3), rounds=1)
    itself, measured = paired_differences(study.plan, study.root, arm="coevolved")
    assert (itself.other, itself.mean, itself.standard_error) == ("stale", 0.0, None)
    assert (itself.estimate.interval, itself.estimate.p_value) == (None, None)
    assert "one and the same cell in round 1" in itself.estimate.lacking
    assert measured.estimate.interval is not None


def test_differences_say_when_an_upfront_generator_had_later_rounds_steps(shared_study):
    longer = Selection(arms=("static",), rounds=3)
    runs = (Selection(arms=("coevolved", "frozen")), longer)
    study = shared_study(arms=("coevolved", "frozen", "static"), rounds=2, run=runs)
    found = compare_arms(study.plan, study.questions, study.root).differences
    said = {one.other: one.remark for one in found if one.metric == "true_quality"}
    assert said["frozen"] == ""
    assert "the generator of static had the steps of later rounds" in said["static"]
    notes = dict(evidence_notes(found))
    assert said["static"] in notes.values()

    study = shared_study(arms=("coevolved", "static"), rounds=2)
    (one,) = paired_differences(study.plan, study.root, arm="coevolved")
    assert one.remark == ""


def test_differences_of_one_seed_equal_the_difference_of_the_tables_means(shared_study):
    study = shared_study(rounds=2)
    table = collect_outcomes(study.plan, study.root)
    for found in paired_differences(study.plan, study.root, arm="coevolved"):
        expected = table.mean("coevolved", 2, "true_quality") - table.mean(
            found.other, 2, "true_quality"
        )
        assert found.mean == pytest.approx(expected)


def test_differences_of_two_seeds_have_no_standard_error_and_say_so(shared_study):
    study = shared_study(seeds=(1, 2), arms=("coevolved", "static"), rounds=1)
    (found, *_) = paired_differences(study.plan, study.root, arm="coevolved")
    assert found.standard_error is None
    assert found.note == "2 seeds, fewer than 3"


def test_differences_of_three_seeds_have_the_standard_error_of_the_seeds(shared_study):
    study = shared_study(seeds=(1, 2, 3), arms=("coevolved", "static"), rounds=1)
    for found in paired_differences(study.plan, study.root, arm="coevolved", metric="delta_gap"):
        means = np.array([one.mean for one in found.by_seed])
        assert found.mean == pytest.approx(means.mean())
        assert found.standard_error == pytest.approx(means.std(ddof=1) / np.sqrt(3))
        assert found.note == "over 3 seeds"


def test_differences_of_two_seeds_have_an_interval_over_prompts_alone(shared_study):
    study = shared_study(seeds=(1, 2), arms=("coevolved", "static"), rounds=1)
    (found,) = paired_differences(study.plan, study.root, arm="coevolved")
    low, high = found.estimate.interval
    assert found.estimate.over == "prompts"
    assert low < found.mean < high
    assert found.estimate.lacking == "none over seeds: 2 of the 3 that it takes"


def test_differences_of_three_seeds_hold_the_studys_true_difference(shared_study):
    # The made-up arms differ by 0.08 on every prompt; what is left is noise.
    study = shared_study(seeds=(1, 2, 3), arms=("coevolved", "static"), rounds=1)
    (found,) = paired_differences(study.plan, study.root, arm="coevolved")
    low, high = found.estimate.interval
    assert found.estimate.over == "seeds and prompts"
    assert low <= 0.08 <= high
    assert found.estimate.p_value < 0.01
    assert found.estimate.superiority > 0.9


def test_differences_count_the_rows_and_prompts_that_were_scored(shared_study):
    study = shared_study(seeds=(1, 2, 3), arms=("coevolved", "static"), rounds=1)
    (found,) = paired_differences(study.plan, study.root, arm="coevolved", metric="delta_gap")
    # 24 prompts of 2 sets; every ninth rubric is invalid.
    assert found.rows == found.other_rows == (3 * 43, 3 * 48)
    assert [(one.n_prompts, one.n_prompts_total) for one in found.by_seed] == [(24, 24)] * 3


def test_differences_of_a_table_are_corrected_together(shared_study):
    # Of the finding's arms stale is one cell with coevolved in round 1: no test, and not counted.
    arms = ("coevolved", "stale", "frozen", "static", "oracle", "rule_based")
    study = shared_study(arms=arms, rounds=1)
    found = compare_arms(study.plan, study.questions, study.root).differences
    families = {
        ("true_quality", "the arms of the paper's findings in true quality"): ["frozen", "static"],
        ("true_quality", "the other arms in true quality"): ["oracle", "rule_based"],
        ("delta_gap", "all arms in Δ gap"): ["frozen", "static", "oracle", "rule_based"],
    }
    for (metric, name), others in families.items():
        own = [one for one in found if one.metric == metric and one.other in others]
        assert {one.family for one in own} == {Family(name, len(others))}
        expected = holm([one.estimate.p_value for one in own])
        assert [one.p_corrected for one in own] == list(expected)
    assert [one.p_corrected for one in found if one.other == "stale"] == [None, None]
    assert [one.other for one in found] == [*arms[1:], *arms[1:]]


def test_differences_have_a_table_a_family_whose_title_says_which_and_its_size(shared_study):
    arms = ("coevolved", "stale", "frozen", "static", "oracle", "rule_based")
    study = shared_study(arms=arms, rounds=1)
    found = compare_arms(study.plan, study.questions, study.root).differences
    said = [
        "p Holm over 2 comparisons, the arms of the paper's findings in true quality",
        "p Holm over 2 comparisons, the other arms in true quality",
        "p Holm over 4 comparisons, all arms in Δ gap",
    ]
    for tables in (evidence_grids(found), evidence_tables(found)):
        assert [table.title.split("; ")[1] for table in tables[:3]] == said
        assert [len(table.rows) for table in tables[:3]] == [3, 2, 5]
    # The same row in the page's table and in the console's.
    page, short = evidence_tables(found)[0], evidence_grids(found)[0]
    places = [page.heads.index(head) for head in short.heads]
    assert [tuple(row[n] for n in places) for row in page.rows] == list(short.rows)


def test_differences_without_an_interval_say_why_in_a_sentence(shared_study):
    study = shared_study(arms=("coevolved", "stale", "frozen"), rounds=1, prompts=12)
    itself, few = paired_differences(study.plan, study.root, arm="coevolved")
    assert no_interval(itself) == (
        "Both are one and the same cell in round 1: nothing was compared."
    )
    assert no_interval(few) == (
        "In true quality in round 1 both are scored on only 12 prompts of seed 1, and an interval "
        f"takes 20: the mean difference of {few.mean:+.3f} stands alone."
    )
    values = {
        seed: ArmValues({f"p{n}": None for n in range(20)}, Measured(None, 0, 20))
        for seed in (1, 2)
    }
    unscored = compare_values("delta_gap", ("a", values), ("b", values), 3)
    assert no_interval(unscored) == (
        "No prompt of seeds 1 and 2 is scored for both in Δ gap in round 3, so there is no "
        "difference."
    )
    apart = compare_values("delta_gap", ("a", {1: values[1]}), ("b", {2: values[2]}), 3)
    assert no_interval(apart) == (
        "No seed has Δ gap in round 3 of both, so there is nothing to compare."
    )


def test_differences_are_computed_the_same_twice(shared_study):
    study = shared_study(seeds=(1, 2, 3), arms=("coevolved", "static"), rounds=1)
    once, again = (paired_differences(study.plan, study.root, arm="coevolved") for _ in range(2))
    assert once == again


def test_differences_of_arms_with_other_seeds_pair_the_common_ones_and_name_the_rest(shared_study):
    study = shared_study(seeds=(1, 2, 3), arms=("coevolved", "static"), rounds=1)
    paths = {place: keys for place, keys in study.plan.paths.items() if place != ("static", 2)}
    (found,) = paired_differences(replace(study.plan, paths=paths), study.root, arm="coevolved")
    assert [one.seed for one in found.by_seed] == [1, 3]
    assert found.unpaired_seeds == {"coevolved": (2,)}


def test_differences_with_a_missing_cell_name_it(fake_study):
    study = fake_study(write=False, arms=("coevolved", "static"), rounds=1)
    study.write_cell("coevolved-s1-r1")
    with pytest.raises(UserError, match="static-s1-r1"):
        paired_differences(study.plan, study.root, arm="coevolved")


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": 0.5, "n_scored": 144, "n_total": 144},
        {"value": None, "n_scored": 0, "n_total": 144},
        {"value": 0.1, "n_scored": 143, "n_total": 144},
    ],
)
def test_differences_from_rows_that_do_not_give_the_outcome_are_refused(fake_study, wrong):
    study = fake_study(arms=("coevolved", "static"), rounds=1)
    study.write_cell("static-s1-r1", metrics={"true_quality": wrong})
    with pytest.raises(UserError, match=r"static-s1-r1.*144/144 rows; expected"):
        paired_differences(study.plan, study.root, arm="coevolved")
