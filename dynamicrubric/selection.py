"""Choosing what a study runs, from outside: arms, seeds and rounds laid into a params.yaml's text.

One pure function for the command line and for whoever schedules studies. It edits the text as
`dvc exp run -S` does, so the file says what was run; comments and everything else stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dynamicrubric.arms import MAX_SEEDS, Selection
from dynamicrubric.config import Config, parse_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import expand
from dynamicrubric.yamlio import edit_yaml

NAME: Final = "params.yaml"


def select(
    text: str,
    run: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
) -> str:
    """Return a params.yaml that runs the given arms, seeds and rounds.

    Args:
        text: a valid params.yaml.
        run: the name of a group, or names of arms; None leaves what is run as it is.
        seeds: the seeds of every arm that is run, also where its group has its own; None leaves
            them as they are.
        rounds: likewise the rounds of every arm.

    Returns:
        The new text: `study.run`, `study.seeds` and `study.rounds` may differ, nothing else. It is
        valid and its plan can be made.

    Raises:
        UserError: the text is not a valid params.yaml, or what was asked for is impossible: an
            unknown group or arm, a seed or arm named twice, numbers out of range.
    """
    values: dict[tuple[str, ...], Any] = {}
    if run is not None:
        values["study", "run"] = run if isinstance(run, str) else list(run)
    if seeds is not None:
        values["study", "seeds"] = list(seeds)
    if rounds is not None:
        values["study", "rounds"] = rounds
    parse_config(text, NAME)  # what is wrong with the file itself is said of the file
    chosen = edit_yaml(text, NAME, values) if values else text
    now = _parsed(chosen).study
    pinned = [_unpinned(one, seeds is not None, rounds is not None) for one in now.selections]
    if pinned != list(now.selections):
        chosen = edit_yaml(chosen, NAME, {("study", "run"): _listed(pinned)})
    expand(_parsed(chosen))
    return chosen


def _parsed(chosen: str) -> Config:
    """Read the text that a choice was laid into: what is wrong now is the choice."""
    try:
        return parse_config(chosen, NAME)
    except UserError as error:
        raise UserError(
            doing="choosing what to run",
            got=(error.got or "").removeprefix("study: "),
            expected=error.expected,
            remedy=f"choose other arms, seeds or rounds; {NAME} is unchanged",
        ) from None


def _unpinned(selection: Selection, seeds: bool, rounds: bool) -> Selection:
    """Drop the seeds or rounds of a group's entry, so that the study's own count for it."""
    dropped = {"seeds": None} if seeds else {}
    return selection.model_copy(update=dropped | ({"rounds": None} if rounds else {}))


def _listed(selections: Sequence[Selection]) -> list[Any]:
    """Return selections as `study.run` takes them: names where arms have nothing of their own."""
    found: list[Any] = []
    for one in selections:
        entry = one.model_dump(mode="json", exclude_none=True)
        found += entry["arms"] if entry.keys() == {"arms"} else [entry]
    return found


def split_names(text: str) -> list[str]:
    """Read names from a command line.

    >>> split_names("coevolved, static")
    ['coevolved', 'static']
    """
    return [name.strip() for name in text.split(",")]


def split_seeds(text: str) -> list[int]:
    """Read seeds from a command line: numbers and ranges.

    Raises:
        UserError: a part is neither.

    >>> split_seeds("1-3,7")
    [1, 2, 3, 7]
    """
    seeds: list[int] = []
    for part in split_names(text):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash) and len(part) < 24):
            raise UserError(
                doing="choosing seeds", got=repr(part), expected="numbers and ranges, as in 1,2,5-7"
            )
        numbers = range(int(first), int(last or first) + 1)
        if not 0 < len(numbers) <= MAX_SEEDS:
            raise UserError(
                doing="choosing seeds",
                got=f"a range of {len(numbers)} seeds, {part!r}",
                expected=f"1 to {MAX_SEEDS} of them",
            )
        seeds += numbers
    return seeds
