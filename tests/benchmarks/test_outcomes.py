"""Scorers whose figures theory knows, and figures against independent references."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from dynamicrubric.benchmarks.compare import compare_all
from dynamicrubric.benchmarks.figures import (
    all_rows,
    by_evaluator,
    influence,
    mean_by_scope,
)
from dynamicrubric.benchmarks.outcomes import (
    best_of_n,
    item_figures,
    kendall,
    listwise_accuracy,
    ndcg,
)
from dynamicrubric.benchmarks.run import run
from dynamicrubric.engines.rating import Rated, RateRequest
from dynamicrubric.evaluators.baselines import LengthEvaluator
from dynamicrubric.evaluators.pairwise import PairwiseEvaluator
from dynamicrubric.ratings import rating_from_masses
from dynamicrubric.seeds import derive_seed

RANDOM = np.random.default_rng(7)
CASES = [
    (RANDOM.integers(0, 4, size).tolist(), sorted(RANDOM.integers(0, 3, size).tolist()))
    for size in (2, 3, 4, 5, 5, 6)
    for _ in range(5)
]


def dense(tiers: list[int]) -> list[int]:
    return [sorted(set(tiers)).index(tier) for tier in tiers]


def strict_orders(scores: list[int]) -> list[tuple[int, ...]]:
    """Return every order of places that breaks the scores' ties."""
    places = range(len(scores))
    return [
        order
        for order in itertools.permutations(places)
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]


@pytest.mark.parametrize(("scores", "tiers"), CASES)
def test_list_figures_equal_the_mean_over_all_ways_to_break_ties(
    scores: list[int], tiers: list[int]
) -> None:
    tiers = dense(tiers)
    orders = strict_orders(scores)
    gains = [max(tiers) - tier for tier in tiers]

    def gained(order: tuple[int, ...]) -> float:
        return sum(gains[place] / math.log2(rank + 2) for rank, place in enumerate(order))

    ideal = max(map(gained, itertools.permutations(range(len(tiers)))))
    right = [all(tiers[a] <= tiers[b] for a, b in itertools.pairwise(o)) for o in orders]
    assert listwise_accuracy(scores, tiers) == pytest.approx(np.mean(right))
    assert best_of_n(scores, tiers) == pytest.approx(np.mean([tiers[o[0]] == 0 for o in orders]))
    if ideal:
        assert ndcg(scores, tiers) == pytest.approx(np.mean([gained(o) for o in orders]) / ideal)
    expected = scipy_stats.kendalltau(scores, [-tier for tier in tiers]).statistic
    assert kendall(scores, tiers) == pytest.approx(0.0 if math.isnan(expected) else expected)


def rows_of(task: Any, where: Path) -> dict[str, Any]:
    return {row.evaluator: row for row in all_rows(run(task, where)) if row.subset == "all"}


def quality_of(text: str) -> float:
    return int(text.split()[1]) / 10 if text.startswith("quality") else 0.0


def test_known_scorers_give_what_theory_says_of_pairs(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    scorers = [
        scorer("constant", lambda one, seed: [0.5] * len(one.responses)),
        scorer("oracle", lambda one, seed: [quality_of(text) for text in one.responses]),
        scorer("inverted", lambda one, seed: [1 - quality_of(text) for text in one.responses]),
        scorer("length", lambda one, seed: [len(text) / 1000 for text in one.responses]),
        scorer(
            "random",
            lambda one, seed: [derive_seed(seed, text) / 2**63 for text in one.responses],
        ),
        scorer("first", lambda one, seed: [1.0, 0.0], sees_set=True),
    ]
    found = rows_of(task_for(scorers, items(400)), tmp_path / "run")
    value = {name: {k: f.value for k, f in row.figures.items()} for name, row in found.items()}
    assert value["constant"]["accuracy"] == 0.5
    assert value["constant"]["tie_rate"] == 1.0
    assert value["constant"]["kendall"] == 0.0
    for name, expected in (("oracle", 1.0), ("inverted", 0.0)):
        assert value[name]["accuracy"] == value[name]["best_of_n"] == expected
        assert value[name]["listwise_accuracy"] == expected
        assert value[name]["kendall"] == 2 * expected - 1
    assert value["oracle"]["ndcg"] == 1.0
    assert value["length"]["accuracy"] == value["length"]["longer_wins"]
    assert value["length"]["accuracy_longer_loses"] == 0.0
    assert value["length"]["prefers_longer"] == 1.0
    # 400 fair coins: 0.5 +- 4 standard errors.
    assert value["random"]["accuracy"] == pytest.approx(0.5, abs=4 * 0.5 / 20)
    low, high = found["random"].figures["accuracy"].interval
    assert low < 0.5 < high
    assert dict(found["first"].outcomes) == {"inconsistent": 400}
    assert (value["first"]["accuracy"], value["first"]["flip_rate"]) == (0.5, 1.0)
    assert value["oracle"]["flip_rate"] is None


def test_known_scorers_give_what_theory_says_of_lists(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    scorers = [
        scorer("constant", lambda one, seed: [0.5] * len(one.responses)),
        scorer("oracle", lambda one, seed: [quality_of(text) for text in one.responses]),
    ]
    found = rows_of(task_for(scorers, items(30, (0, 1, 1, 2))), tmp_path / "run")
    constant = {name: figure.value for name, figure in found["constant"].figures.items()}
    assert constant["listwise_accuracy"] == pytest.approx(2 / 24)  # prod(tier sizes!) / K!
    assert constant["best_of_n"] == 0.25
    assert constant["accuracy"] == 0.5
    assert constant["gold_ties_tied"] == 1.0
    assert found["oracle"].figures["listwise_accuracy"].value == 1.0
    assert found["oracle"].figures["gold_ties_tied"].value == 1.0


def test_unscored_gold_ties_are_counted_among_those_there_are(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    never = scorer("never", lambda one, seed: [None] * len(one.responses))
    mixed = [*items(4, (0, 0)), *items(3, (0, 1), id="pair", prompt_id="pair")[:1]]
    figure = rows_of(task_for([never], mixed), tmp_path / "run")["never"].figures["gold_ties_tied"]
    assert (figure.value, figure.n_scored, figure.n_total) == (None, 0, 4)


class AlwaysA:
    """A judge that names the first place, but for texts of quality 2: those it names wherever."""

    def rate(self, requests: Sequence[RateRequest]) -> list[Rated]:
        found = []
        for request in requests:
            first, second = request.messages[-1][1].split("Response A:\n")[1].split("Response B:\n")
            says_b = "quality 2" in second and "quality 2" not in first
            found.append(Rated(rating_from_masses([1.0 - says_b, float(says_b)])))
        return found


def test_flips_of_an_evaluator_that_swaps_pairs_itself_are_its_judges(
    items: Any, task_for: Any, tmp_path: Path
) -> None:
    pairs = rows_of(task_for([PairwiseEvaluator(AlwaysA())], items(25)), tmp_path / "pairs")
    row = pairs["pairwise"]
    assert dict(row.outcomes) == {"inconsistent": 25}
    assert (row.figures["flip_rate"].value, row.figures["accuracy"].value) == (1.0, 0.5)
    lists = rows_of(task_for([PairwiseEvaluator(AlwaysA())], items(25, (0, 1, 2))), tmp_path / "k")
    # The best one wins both of its comparisons in both orders; the other comparison flips.
    assert lists["pairwise"].figures["flip_rate"].value == pytest.approx(1 / 3)
    assert lists["pairwise"].figures["accuracy"].value == pytest.approx(2.5 / 3)


def test_length_alone_reaches_longer_wins_whatever_blanks_stand_around_texts(
    items: Any, task_for: Any, tmp_path: Path
) -> None:
    padded = items(30, responses=("longer text", "short" + "\n" * 40))
    row = rows_of(task_for([LengthEvaluator()], padded), tmp_path / "run")["length"]
    assert row.figures["accuracy"].value == row.figures["longer_wins"].value == 1.0
    assert row.figures["accuracy_longer_loses"].value is None


def test_position_alone_says_nothing_over_placements(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    first = scorer("first", lambda one, seed: [1.0, 0.0])  # claims not to see the set
    found = rows_of(task_for([first], items(400)), tmp_path / "run")
    assert found["first"].figures["accuracy"].value == pytest.approx(0.5, abs=0.1)


def test_unscored_pairs_are_bounded_and_never_numbers(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    def score(one: Any, seed: int) -> list[float | None]:
        number = int(one.prompt_id[1:])
        if number < 2:
            return [None, 0.5]
        right = [quality_of(text) for text in one.responses]
        return right if number < 8 else [1 - value for value in right]

    found = rows_of(task_for([scorer("some", score)], items(10)), tmp_path / "run")["some"]
    accuracy = found.figures["accuracy"]
    assert (accuracy.value, accuracy.n_scored, accuracy.n_total) == (0.75, 8, 10)
    assert (found.worst, found.best) == (0.6, 0.8)
    assert found.unscored_rate == pytest.approx(2 / 20)
    assert dict(found.reasons) == {"refusal": 2}
    assert dict(found.outcomes) == {"win": 6, "loss": 2, "unscored": 2}


def test_identical_responses_tie_without_a_call_and_copies_get_one_score(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    asked = scorer("first", lambda one, seed: [1.0, *[0.0] * (len(one.responses) - 1)], True)
    same = items(1, responses=("x", "x"))
    copies = items(1, (0, 1, 2), responses=("x", "y", "x"), id="copies")
    scored = run(task_for([asked], [*same, *copies]), tmp_path / "run")
    assert {one.prompt_id for one in asked.asked} == {"p0"}
    assert len(asked.asked) == 2  # the second item, in both orders
    assert scored[0].scores[0] == (0.5, 0.5)
    assert item_figures(scored[0]).values["accuracy"] is None  # no order of one text
    for own in scored[1].scores:
        assert own[0] == own[2]
    assert item_figures(scored[1]).outcomes.total() == 2  # the copies are no pair


def test_macro_weighs_subsets_and_all_weighs_items(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    right = items(30, subset="right")
    wrong = [
        item.__class__(**{**vars_of(item), "id": f"w{item.id}", "subset": "wrong"})
        for item in items(10)
    ]
    by_id = scorer(
        "half",
        lambda one, seed: [
            quality_of(t) if "wrong" not in one.prompt else 1 - quality_of(t) for t in one.responses
        ],
    )
    wrong = [
        item.__class__(**{**vars_of(item), "prompt": "wrong", "prompt_id": f"w{n}"})
        for n, item in enumerate(wrong)
    ]
    rows = {row.subset: row for row in all_rows(run(task_for([by_id], [*right, *wrong]), tmp_path))}
    assert rows["right"].figures["accuracy"].value == 1.0
    assert rows["wrong"].figures["accuracy"].value == 0.0
    assert rows["macro"].figures["accuracy"].value == 0.5
    assert rows["all"].figures["accuracy"].value == 0.75


def vars_of(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


def scored_at_random(
    items: Any, scorer: Any, task_for: Any, where: Path, count: int = 60, **changed: Any
) -> list[Any]:
    luck = scorer("luck", lambda one, seed: [derive_seed(seed, t) / 2**63 for t in one.responses])
    return run(task_for([luck], items(count, **changed)), where)


def test_interval_is_students_over_prompts(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    scored = scored_at_random(items, scorer, task_for, tmp_path)
    (row,) = all_rows(scored)
    values = [item_figures(one).values["accuracy"] for one in scored]
    expected = scipy_stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert row.figures["accuracy"].interval == pytest.approx(tuple(expected))


def test_influence_values_average_to_the_figure_and_copies_add_no_certainty(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    scored = scored_at_random(items, scorer, task_for, tmp_path)
    copied = [one.__class__(**{**vars_of(one), "id": f"{one.id}-{n}"}) for one in scored
              for n in range(4)]  # fmt: skip
    once, four = all_rows(scored)[0], all_rows(copied)[0]
    assert four.num_items == 4 * once.num_items
    assert four.figures["accuracy"].interval == pytest.approx(once.figures["accuracy"].interval)
    figures = by_evaluator(scored)["luck", "made"]
    values = [(one, one.values["accuracy"]) for one in figures]
    by_prompt = influence(values, "macro")[1]
    assert np.mean(list(by_prompt.values())) == pytest.approx(mean_by_scope(values, "macro")[1])


def spread_over_subsets(scored: list[Any], size: int) -> list[Any]:
    """Return scored items in subsets of `size` prompts each."""
    return [
        one.__class__(**{**vars_of(one), "subset": f"s{n // size}"}) for n, one in enumerate(scored)
    ]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_macro_over_small_subsets_is_as_uncertain_as_its_items(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path, size: int
) -> None:
    # Equal subsets whose items are alike: the macro mean is the mean over items, and its standard
    # error that of 60 coins. Left as they are, deviations from a subset's own mean would make it
    # narrower by sqrt((size - 1) / size): a point for subsets of one prompt.
    scored = scored_at_random(items, scorer, task_for, tmp_path)
    rows = {row.subset: row for row in all_rows(spread_over_subsets(scored, size))}
    widths = {}
    for name in ("macro", "all"):
        low, high = rows[name].figures["accuracy"].interval
        widths[name] = high - low
    assert rows["macro"].figures["accuracy"].value == rows["all"].figures["accuracy"].value
    assert widths["macro"] == pytest.approx(widths["all"], rel=0.15)


def test_one_subset_of_one_prompt_leaves_the_macro_mean_without_an_interval(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    scored = spread_over_subsets(
        scored_at_random(items, scorer, task_for, tmp_path, count=41), size=20
    )
    figure = {row.subset: row for row in all_rows(scored)}["macro"].figures["accuracy"]
    assert figure.value is not None
    assert figure.interval is None
    assert "subset s2: one scored prompt" in figure.lacking


def test_prompt_that_one_seed_lacks_leaves_the_interval_around_the_figure(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    luck = scorer("luck", lambda one, seed: [derive_seed(seed, t) / 2**63 for t in one.responses])
    scored = run(task_for([luck], items(60), (1, 2, 3)), tmp_path)
    fewer = [one for one in scored if (one.seed, one.prompt_id) not in {(1, "p1"), (2, "p2")}]
    (row,) = all_rows(fewer)
    low, high = row.figures["accuracy"].interval
    assert (low + high) / 2 == pytest.approx(row.figures["accuracy"].value)


def test_few_prompts_have_no_interval_and_say_so(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    (row,) = all_rows(scored_at_random(items, scorer, task_for, tmp_path, 19))
    assert row.figures["accuracy"].interval is None
    assert "fewer than 20" in row.figures["accuracy"].lacking


def test_differences_are_paired_and_corrected(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    def luck(name: str) -> Any:
        return scorer(name, lambda one, seed: [derive_seed(seed, t) / 2**63 for t in one.responses])

    oracle = scorer("oracle", lambda one, seed: [quality_of(t) for t in one.responses])
    scored = run(task_for([luck("a"), luck("b"), oracle], items(80), (1, 2, 3)), tmp_path)
    found = {one.other: one for one in compare_all(scored, "a")}
    assert found["b"].difference == 0.0  # the same draws: paired, no spread at all
    assert found["b"].interval == (0.0, 0.0)
    assert found["oracle"].difference == pytest.approx(
        np.mean([item_figures(o).values["accuracy"] for o in scored if o.evaluator == "a"]) - 1
    )
    assert found["oracle"].over == "seeds and prompts"
    assert found["oracle"].p_holm == pytest.approx(2 * found["oracle"].p_value)
    assert set(found["oracle"].by_seed) == {1, 2, 3}


@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_score_scale_changes_no_figure(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path, shift: float
) -> None:
    def scaled(factor: float) -> Callable[..., list[float]]:
        return lambda one, seed: [
            shift + factor * derive_seed(seed, t) / 2**63 for t in one.responses
        ]

    plain = scorer("a", scaled(0.5), True)
    small = scorer("a", scaled(0.01), True)
    found = [
        all_rows(run(task_for([one], items(40, (0, 1, 2))), tmp_path / str(n)))[0]
        for n, one in enumerate((plain, small))
    ]
    assert found[0].figures == found[1].figures
