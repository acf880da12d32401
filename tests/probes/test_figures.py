"""Figures of attacks against means by hand and numpy, and findings with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from dynamicrubric.probes.figures import attack_figures, figure_rows


def row(attack: str, prompt: int, score: float | None, quality: float | None = 0.0, **more):
    mode = more.pop("mode", "seen")
    return {
        "evaluator": "dynamic", "attack": attack, "order": more.pop("order", "second"),
        "mode": mode, "prompt_id": f"p{prompt}", "score_gain": score, "rank_gain": score,
        "quality_gain": quality, **more,
    }  # fmt: skip


def scattered(seed: int, mean: float, count: int = 30, scale: float = 0.1) -> list[float]:
    return list(np.random.default_rng(seed).normal(mean, scale, count))


def test_gain_is_the_mean_over_prompts_of_the_means_within_them():
    rows = [row("filler", n, 0.1 * n) for n in range(20)]
    rows += [row("filler", 0, 1.0), row("filler", 0, None)]
    (found,) = attack_figures({1: rows})
    assert found.score.mean == pytest.approx(np.mean([0.5, *(0.1 * n for n in range(1, 20))]))
    assert (found.score.n_scored, found.score.n_total) == (21, 22)
    assert found.score.estimate.over == "prompts"


def test_interval_is_of_prompts_and_copies_of_rows_change_nothing():
    rows = [row("filler", n, gain) for n, gain in enumerate(scattered(1, 0.02))]
    (once,), (fourfold,) = attack_figures({1: rows}), attack_figures({1: rows * 4})
    assert once.score.estimate == fourfold.score.estimate
    low, high = once.score.estimate.interval
    gains = np.array(scattered(1, 0.02))
    half = 2.0452 * gains.std(ddof=1) / np.sqrt(30)  # t of 29 degrees
    assert (low, high) == pytest.approx((gains.mean() - half, gains.mean() + half), abs=0.001)


def test_three_seeds_have_an_interval_over_seeds_and_prompts():
    by_seed = {
        seed: [row("filler", n, gain) for n, gain in enumerate(scattered(seed, 0.1))]
        for seed in (1, 2, 3)
    }
    (found,) = attack_figures(by_seed)
    assert found.score.estimate.over == "seeds and prompts"
    assert found.score.n_total == 90


@pytest.mark.parametrize(
    ("score", "quality", "finding"),
    [
        (0.3, 0.0, "unearned"),
        (0.3, -0.2, "unearned"),
        (0.3, 0.3, "earned"),
        (0.3, None, "unknown"),
        (0.0, -0.2, "none"),
        (-0.3, 0.3, "none"),
        (None, 0.1, "no interval"),
    ],
)
def test_finding_is_what_the_intervals_of_both_say(score, quality, finding):
    scores = [None] * 30 if score is None else scattered(3, score)
    qualities = [None] * 30 if quality is None else scattered(4, quality)
    if score == 0.0:
        scores = [value - np.mean(scores) for value in scores]
    rows = [row("filler", n, s, q) for n, (s, q) in enumerate(zip(scores, qualities, strict=True))]
    (found,) = attack_figures({1: rows})
    assert found.finding == finding


def test_p_is_corrected_over_the_attacks_of_an_evaluator_and_controls_are_none():
    values = scattered(5, 0.05)
    rows = [
        row(name, n, value)
        for name in ("filler", "claim", "copies_alone")
        for n, value in enumerate(values)
    ]
    first, second, control = attack_figures({1: rows})
    assert first.p_corrected == pytest.approx(min(1.0, 2 * first.score.estimate.p_value))
    assert second.p_corrected == first.p_corrected
    assert (control.finding, control.p_corrected) == ("control", None)
    other = [{**one, "evaluator": "geval"} for one in rows if one["attack"] == "filler"]
    alone = attack_figures({1: rows + other})[-1]
    assert alone.evaluator == "geval"
    assert alone.p_corrected == alone.score.estimate.p_value


def test_shares_of_sets_count_what_is_known_alone():
    rows = [row("filler", n, 0.2, -0.1 if n < 5 else 0.1) for n in range(20)]
    rows += [row("filler", 20, 0.2, None), row("filler", 21, None, -0.1), row("filler", 22, 0.0)]
    (found,) = attack_figures({1: rows})
    assert (found.unearned.value, found.unearned.n_scored, found.unearned.n_total) == (
        pytest.approx(5 / 21), 21, 23
    )  # fmt: skip
    assert found.wins_rank.value == pytest.approx(21 / 22)


def test_rows_of_the_csv_have_an_empty_cell_for_no_value():
    rows = [row("filler", n, None) for n in range(20)]
    (written,) = figure_rows(attack_figures({1: rows}), arm="coevolved", round=1)
    assert (written["arm"], written["round"], written["attack"]) == ("coevolved", 1, "filler")
    assert written["score_gain"] is None and written["score_low"] is None
    assert (written["score_scored"], written["score_total"]) == (0, 20)
    assert written["finding"] == "no interval"


def test_quality_is_that_of_the_sets_whose_score_is_known():
    scores = scattered(3, 0.3)
    rows = [row("filler", n, gain, 0.2 + gain / 10) for n, gain in enumerate(scores)]
    rows += [row("filler", 100 + n, None, -5.0) for n in range(30)]
    (found,) = attack_figures({1: rows})
    assert found.finding == "earned"
    assert (found.quality.n_scored, found.quality.n_total) == (30, 60)
    assert found.quality.mean == pytest.approx(0.2 + np.mean(scores) / 10)


def test_quality_of_too_few_prompts_is_not_what_nobody_knows():
    gains = scattered(3, 0.3)
    rows = [row("filler", n, gain, -0.1 if n < 5 else None) for n, gain in enumerate(gains)]
    (found,) = attack_figures({1: rows})
    assert found.quality.mean == pytest.approx(-0.1)
    assert found.finding == "no interval"
