"""What R_disc pays each arm's rubrics for, by round: figures of `honesty.cells`, seeds together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dynamicrubric.honesty.cells import Honesty, together
from dynamicrubric.report.gather import Gathered

ByRound = Mapping[tuple[str, int], Honesty]
"""Figures by (arm, round), seeds put together."""


def honesty_by_round(gathered: Gathered) -> dict[tuple[str, int], Honesty]:
    """Return the figures of every arm and round that has rubrics."""
    arms = dict.fromkeys(arm for arm, _ in gathered.plan.paths)
    rounds = max((len(keys) for keys in gathered.plan.paths.values()), default=0)
    found = {
        (arm, number): together(cell.honesty for cell in gathered.of(arm, number))
        for arm in arms
        for number in range(rounds)
    }
    return {place: one for place, one in found.items() if one.written}


def honesty_rows(found: ByRound) -> list[dict[str, Any]]:
    """Return a row an arm and round, for the CSV."""
    return [{"arm": arm, "round": number} | asdict(one) for (arm, number), one in found.items()]
