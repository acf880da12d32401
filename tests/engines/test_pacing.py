"""When calls may start, and how an endpoint's wish to be left alone is read."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from dynamicrubric.engines.pacing import Cost, CostMeter, Pacer, retry_after


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_pacer_spaces_starts_evenly_and_gives_unused_time_to_nobody() -> None:
    clock = Clock()
    pacer = Pacer(120.0, clock)
    assert [pacer.seconds_to_turn() for _ in range(4)] == [0.0, 0.5, 1.0, 1.5]
    clock.time += 60.0
    assert [pacer.seconds_to_turn() for _ in range(2)] == [0.0, 0.5]


def test_pacer_without_a_limit_lets_all_start() -> None:
    pacer = Pacer(0.0, Clock())
    assert [pacer.seconds_to_turn() for _ in range(3)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("per_minute", [0.0, 600.0])
def test_hold_keeps_everybody_waiting_and_a_shorter_one_changes_nothing(per_minute: float) -> None:
    clock = Clock()
    pacer = Pacer(per_minute, clock)
    pacer.hold(30.0)
    pacer.hold(5.0)
    assert pacer.seconds_to_turn() == 30.0
    assert pacer.seconds_to_turn() >= 30.0
    clock.time += 31.0
    assert pacer.seconds_to_turn() == 0.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_its_forms(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers) == expected


def test_retry_after_as_a_date_is_the_time_until_then() -> None:
    found = retry_after({"retry-after": formatdate(time.time() + 3600, usegmt=True)})
    assert found is not None
    assert 3000.0 < found <= 3601.0


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": "3"}, {"prompt_tokens": True, "completion_tokens": -1}]
)
def test_answer_without_a_proper_token_count_is_counted_as_such(usage: object) -> None:
    meter = CostMeter()
    meter.add(1.5, {"usage": usage})
    meter.add(0.5, None)
    assert meter.total() == Cost(calls=2, answered=1, without_count=1, seconds=2.0)
