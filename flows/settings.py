"""Settings of a study that come from the form of a deployment: checked, then written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dynamicrubric.config import parse_config
from dynamicrubric.errors import UserError
from dynamicrubric.yamlio import read_text
from flows.planning import Choice, Say, lay_choice
from tasks.study import Study

PARAMS = "params.yaml"
PROFILES = "profiles"


def choose(
    study: Study,
    *,
    arms: Sequence[str] = (),
    seeds: Sequence[int] = (),
    rounds: int | None = None,
    profile: str | None = None,
    say: Say = lambda text: None,
) -> bool:
    """Write params.yaml with other arms, seeds, rounds; return whether that changed it.

    Args:
        study: whose settings they are; the caller holds its lock.
        arms: names of arms, or the name of one group; empty for those that are there.
        seeds: seeds; empty for those that are there.
        rounds: rounds; None for as many as are there.
        profile: name of a file in profiles/, with or without `.yaml`, to begin with.
        say: told when the file has changed.

    Raises:
        UserError: the choice is not possible. Nothing is written then.
    """
    base = profile_path(study.root, profile) if profile else None
    text = read_text(base or study.root / PARAMS)
    choice = Choice(_run(text, arms), tuple(seeds) or None, rounds)
    return lay_choice(study.root, choice, say=say, profile=base)


def profiles(root: Path) -> list[str]:
    """Return the names of the profiles of a project."""
    return sorted(path.stem for path in (root / PROFILES).glob("*.yaml"))


def profile_path(root: Path, name: str) -> Path:
    """Return the file of a profile.

    Raises:
        UserError: there is none of that name.
    """
    known = profiles(root)
    stem = name.removesuffix(".yaml")
    if stem not in known:
        raise UserError(
            doing="choosing a profile",
            got=repr(name),
            expected=f"one of {', '.join(known)}" if known else "a file in profiles/",
        )
    return root / PROFILES / f"{stem}.yaml"


def _run(text: str, names: Sequence[str]) -> str | list[str] | None:
    """Return what `select` takes: the name of a group, or names of arms.

    Raises:
        UserError: a group is named beside something else.
    """
    groups = parse_config(text, PARAMS).study.groups
    named = [name for name in names if name in groups]
    if named and len(names) > 1:
        raise UserError(
            doing="choosing the arms of the study",
            got=f"the group {named[0]!r} beside {', '.join(n for n in names if n != named[0])}",
            expected="one group alone, or arms",
        )
    return named[0] if named else list(names) or None
