"""What a person chose to run, in a form or on a command line: checked, then written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynamicrubric.config import parse_config
from dynamicrubric.errors import UserError
from dynamicrubric.selection import select
from dynamicrubric.yamlio import replace_text
from tasks.disk import disk_errors

PARAMS: Final = "params.yaml"
PROFILES: Final = "profiles"
KEPT_PARAMS: Final = "work/params.yaml.before"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Choice:
    """What to run of a study; what is empty or None is as params.yaml has it.

    Attributes:
        arms: names of arms, or the name of one group alone.
        seeds: seeds of every arm.
        rounds: rounds of every arm.
        profile: name of a file in profiles/, with or without `.yaml`, to begin with.
        group: name of a group, instead of `arms`.
    """

    arms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    rounds: int | None = None
    profile: str | None = None
    group: str | None = None


def lay_choice(root: Path, choice: Choice, *, say: Say) -> None:
    """Write what was chosen into params.yaml, so that the file says what is run.

    The caller holds the study's lock.

    Raises:
        UserError: the choice is not possible. Nothing is written then.
    """
    if choice == Choice():
        return
    path = root / PARAMS
    before = _read(path)
    text = _read(profile_path(root, choice.profile)) if choice.profile else before
    run = choice.group or _run(text, choice.arms)
    chosen = select(text, run, choice.seeds or None, choice.rounds)
    if chosen == before:
        return
    with disk_errors("writing the settings", path):
        if choice.profile and not _is_profile(root, before):
            say(f"params.yaml as it was is kept as {_keep(root, before)}")
        replace_text(path, chosen)
    say("What was chosen is written into params.yaml")
    if choice.profile:
        say(
            f"It is the profile {choice.profile.removesuffix('.yaml')} now; PROFILE=postcards goes "
            "back to the embedded world, whose finished results DVC restores"
        )


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


def _is_profile(root: Path, text: str) -> bool:
    """Say whether a params.yaml is a profile as it is: then nothing is lost with it."""
    return any(_read(profile_path(root, name)) == text for name in profiles(root))


def _keep(root: Path, text: str) -> str:
    """Write settings into a file of their own and return its name; never over kept ones.

    A profile laid with other seeds is no profile's file, so one choice after another comes here.
    """
    name, number = KEPT_PARAMS, 1
    while (root / name).exists() and _read(root / name) != text:
        number += 1
        name = f"{KEPT_PARAMS}.{number}"
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    replace_text(root / name, text)
    return name


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


def _read(path: Path) -> str:
    with disk_errors("reading the settings", path):
        return path.read_text(encoding="utf-8")
