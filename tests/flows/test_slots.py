"""Turns: the stage with most work ahead goes first, and never more are begun than may be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynamicrubric.config import load_config
from dynamicrubric.plan import expand
from flows.stages import Slots, stages_of


def test_slots_free_one_goes_to_the_highest_waiting_priority(
    wait: Callable[..., Any], patience: float
) -> None:
    slots, order = Slots(1), []

    def take(priority: int) -> None:
        with slots.held(priority):
            order.append(priority)

    threads = [threading.Thread(target=take, args=(priority,)) for priority in (1, 5, 3, 5, 2)]
    with slots.held(0):
        for thread in threads:
            thread.start()
        wait(lambda: len(slots._waiting) == len(threads), "all to wait")
        assert order == []
    for thread in threads:
        thread.join(patience)
    assert sorted(order) == [1, 2, 3, 5, 5]
    assert order == sorted(order, reverse=True)


def test_stages_of_the_longest_chain_has_most_ahead(project_root: Path) -> None:
    plan = expand(load_config(project_root / "profiles/postcards.yaml"))
    stages = {stage.name: stage for stage in stages_of(plan, {"policy": 1, "generator": 1})}
    rounds = [stages[f"round@coevolved-s1-r{number}"].steps_ahead for number in (1, 2, 3)]
    assert rounds == sorted(rounds, reverse=True)
    assert stages["plan"].steps_ahead == max(stage.steps_ahead for stage in stages.values())
    assert all(name in stages for stage in stages.values() for name in stage.after)
