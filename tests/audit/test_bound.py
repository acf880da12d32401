"""One beta for all generators: the programmes against a search, and answers known by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynamicrubric.audit.bound import (
    Points,
    fits,
    least_largest,
    least_mean,
    points_of,
    slack_at,
    slacks,
    within_slope,
)


def drawn(seed: int, *, slope: float, noise: float) -> Points:
    draw = np.random.default_rng(seed)
    groups = []
    for number in range(4):
        anchor = draw.normal(-3.0, 0.5, size=6 + number)
        residual = 0.3 - slope * anchor + noise * draw.normal(size=anchor.size)
        groups.append((anchor, residual + draw.normal()))
    return points_of(groups)


def by_definition(points: Points, beta: float) -> list[float]:
    """Slack of each generator, in plain Python."""
    left = [-e - beta * j for e, j in zip(points.residual, points.anchor, strict=True)]
    lowest = {
        place: min(value for value, own in zip(left, points.offset, strict=True) if own == place)
        for place in set(points.offset.tolist())
    }
    return [value - lowest[own] for value, own in zip(left, points.offset.tolist(), strict=True)]


@pytest.mark.parametrize("seed", range(5))
def test_least_slacks_are_what_a_search_over_beta_finds(seed: int) -> None:
    points = drawn(seed, slope=0.25, noise=0.05)
    searched = [(beta, by_definition(points, beta)) for beta in np.linspace(0.0, 2.0, 4001)]
    largest, mean = least_largest(points), least_mean(points)
    assert largest.largest <= min(max(own) for _, own in searched) + 1e-12
    assert mean.mean <= min(sum(own) / len(own) for _, own in searched) + 1e-12
    nearest = min(searched, key=lambda one: max(one[1]))
    assert largest.largest == pytest.approx(max(nearest[1]), abs=1e-3)
    nearest = min(searched, key=lambda one: sum(one[1]))
    assert mean.mean == pytest.approx(sum(nearest[1]) / len(nearest[1]), abs=1e-3)


@pytest.mark.parametrize("beta", [0.0, 0.2, 2.4])
def test_slack_is_the_definition_and_binds_once_an_offset(beta: float) -> None:
    points = drawn(7, slope=0.1, noise=0.2)
    found = slacks(points, beta)
    assert found.tolist() == pytest.approx(by_definition(points, beta))
    assert found.min() >= 0.0
    for place in range(points.num_offsets):
        assert (found[points.offset == place] < 1e-12).sum() >= 1


def test_generators_on_one_line_leave_nothing_at_its_slope() -> None:
    points = drawn(3, slope=0.25, noise=0.0)
    for found in (least_largest(points), least_mean(points)):
        assert found.beta == pytest.approx(0.25)
        assert found.largest == pytest.approx(0.0, abs=1e-9)
    assert within_slope(points) == pytest.approx(0.25)
    assert slack_at(points, 2.4).largest > 1.0


def test_anchors_that_say_the_opposite_get_no_weight() -> None:
    points = drawn(3, slope=-0.25, noise=0.0)
    assert least_largest(points).beta == least_mean(points).beta == 0.0
    assert within_slope(points) == pytest.approx(-0.25)


def test_two_generators_by_hand() -> None:
    # left sides at beta: -0.4 + 2 beta and -0.1 + beta: apart by 0.3 - beta
    points = points_of([(np.array([-2.0, -1.0]), np.array([0.4, 0.1]))])
    assert slack_at(points, 0.1).largest == pytest.approx(0.2)
    assert slack_at(points, 1.3).largest == pytest.approx(1.0)
    assert least_largest(points).beta == pytest.approx(0.3)
    # shared by both of two such pairs, one of them moved: the offset is the lower one's
    both = Points(np.tile(points.anchor, 2), np.concatenate([points.residual, points.residual + 1]),
                  np.zeros(4, dtype=np.intp))  # fmt: skip
    assert slack_at(both, 0.3).largest == pytest.approx(1.0)


def test_without_spread_in_j_anchor_there_is_no_slope(synthetic: Any) -> None:
    points = points_of([(np.full(3, -2.0), np.array([0.1, 0.2, 0.3]))])
    assert within_slope(points) is None
    assert slack_at(points, 5.0).largest == pytest.approx(0.2)
    assert least_mean(points).mean == pytest.approx(0.1)


@pytest.mark.parametrize("slope", [0.25, 0.0, -0.25])
def test_many_versions_at_once_are_what_the_programmes_find(slope: float) -> None:
    versions = [drawn(seed, slope=slope, noise=0.1) for seed in range(6)]
    found = fits(
        np.array([one.anchor for one in versions]),
        np.array([one.residual for one in versions]),
        versions[0].offset,
    )
    for place, points in enumerate(versions):
        largest, mean, none = least_largest(points), least_mean(points), slack_at(points, 0.0)
        at_largest = slack_at(points, float(found.largest_beta[place]))
        at_mean = slack_at(points, float(found.mean_beta[place]))
        assert at_largest.largest == pytest.approx(largest.largest, abs=1e-9)
        assert at_mean.mean == pytest.approx(mean.mean, abs=1e-9)
        off = 1.0 - largest.largest / none.largest
        assert found.largest_off[place] == pytest.approx(off, abs=1e-9)
        off = 1.0 - mean.mean / none.mean
        assert found.mean_off[place] == pytest.approx(off, abs=1e-9)


def test_versions_without_spread_or_slack_get_no_beta() -> None:
    flat, line = np.full((1, 3), -2.0), np.array([[-3.0, -2.0, -1.0]])
    offset = np.zeros(3, dtype=np.intp)
    found = fits(flat, np.array([[0.1, 0.2, 0.3]]), offset)
    assert found.largest_beta[0] == found.mean_beta[0] == 0.0
    assert found.largest_off[0] == found.mean_off[0] == 0.0
    found = fits(line, np.full((1, 3), 0.2), offset)
    assert found.largest_off[0] == found.mean_off[0] == 0.0
