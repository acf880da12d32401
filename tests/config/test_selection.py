"""Choosing what is run from outside: params.yaml changes where asked and nowhere else."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import ArmRun, parse_config
from dynamicrubric.errors import UserError
from dynamicrubric.selection import select

TEXT = (
    (Path(__file__).parent / "study.yaml")
    .read_text(encoding="utf-8")
    .replace(
        "study:\n",
        """study:  # what is run
  groups:
    pair:
    - arms: [coevolved, stale]
    pinned:
    - arms: [static]  # alone
    - arms: [coevolved, frozen]
      seeds: [1, 2]
      rounds: 4
""",
    )
)


def runs(text: str) -> list[ArmRun]:
    return list(parse_config(text, "params.yaml").study.runs)


def changed(before: str, after: str) -> list[str]:
    """Return the lines that are new or gone."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def test_select_of_nothing_changes_nothing() -> None:
    assert select(TEXT) == TEXT


def test_select_group_changes_one_line() -> None:
    chosen = select(TEXT, "pair")
    assert changed(TEXT, chosen) == ["+   run: pair"]
    assert runs(chosen) == [ArmRun("coevolved", (1,), 3), ArmRun("stale", (1,), 3)]
    assert changed(chosen, select(chosen, "pinned")) == ["-   run: pair", "+   run: pinned"]


def test_select_arms_seeds_and_rounds_changes_their_lines_and_keeps_comments() -> None:
    chosen = select(TEXT, ["static", "frozen"], [3, 5], 2)
    assert changed(TEXT, chosen) == [
        "-   rounds: 3",
        "+   rounds: 2",
        "-   seeds: [1]",
        "+   seeds: [3, 5]",
        "+   run: [static, frozen]",
    ]
    assert runs(chosen) == [ArmRun("frozen", (3, 5), 2), ArmRun("static", (3, 5), 2)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, [("coevolved", (1, 2), 4), ("frozen", (1, 2), 4), ("static", (1,), 3)]),
        ({"seeds": [9]}, [("coevolved", (9,), 4), ("frozen", (9,), 4), ("static", (9,), 3)]),
        ({"rounds": 2}, [("coevolved", (1, 2), 2), ("frozen", (1, 2), 2), ("static", (1,), 2)]),
        (
            {"seeds": [9], "rounds": 2},
            [("coevolved", (9,), 2), ("frozen", (9,), 2), ("static", (9,), 2)],
        ),
    ],
)
def test_select_seeds_and_rounds_count_for_every_arm_of_the_group(
    wanted: dict[str, Any], expected: list[tuple[str, tuple[int, ...], int]]
) -> None:
    at_once = select(TEXT, "pinned", **wanted)
    assert runs(at_once) == [ArmRun(*one) for one in expected]
    assert runs(select(select(TEXT, "pinned"), **wanted)) == runs(at_once)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody",), "run is 'nobody', which is no group; the groups are pair, pinned"),
        (("stale",), "it is an arm: a list takes arms"),
        ((["stale", "nobody"],), "run names the arm 'nobody'; the arms are coevolved, stale"),
        ((["stale", "stale"],), "run names the arm 'stale' more than once"),
        (([],), "the name of a group, or a list of arms"),
        (([""],), "entry 1: arms.0 = ''; expected a name of 1 to 32 characters"),
        ((None, [1, 1]), "seeds lists 1 more than once"),
        ((None, []), r"study.seeds = \[\]"),
        ((None, [-1]), "study.seeds.0 = -1"),
        ((None, None, 0), "study.rounds = 0"),
    ],
)
def test_select_of_the_impossible_is_refused_in_a_sentence(
    arguments: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(UserError, match=said) as caught:
        select(TEXT, *arguments)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("choosing what to run: got ")  # the file is right
    assert "params.yaml is unchanged" in str(caught.value)


def test_select_in_a_text_that_is_no_study_says_so() -> None:
    with pytest.raises(UserError, match=r"(?s)params\.yaml.*world"):
        select("study: {run: default}\n", "pair")
