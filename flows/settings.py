"""Settings of a study that come from the form of a deployment: checked, then written."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from ruamel.yaml import YAML

from dynamicrubric.config import load_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import expand
from dynamicrubric.selection import select
from tasks.disk import disk_errors
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
) -> bool:
    """Write params.yaml with other arms, seeds, rounds; return whether that changed it.

    Args:
        study: whose settings they are; the caller holds its lock.
        arms: names of arms, or the name of one group; empty for those that are there.
        seeds: seeds; empty for those that are there.
        rounds: rounds; None for as many as are there.
        profile: name of a file in profiles/, with or without `.yaml`, to begin with.

    Raises:
        UserError: the choice is not possible. Nothing is written then.
    """
    path = study.root / PARAMS
    before = _read(path)
    text = _read(profile_path(study.root, profile)) if profile else before
    chosen = select(text, _run(text, arms), tuple(seeds) or None, rounds)
    if chosen == before:
        return False
    _check(chosen, path.parent)
    _replace(path, chosen)
    return True


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


def _run(text: str, arms: Sequence[str]) -> str | list[str] | None:
    """Return what `select` takes: the name of a group, or names of arms."""
    groups = YAML(typ="safe", pure=True).load(text)["study"].get("groups") or {}
    if len(arms) == 1 and arms[0] in groups:
        return arms[0]
    return list(arms) or None


def _check(text: str, folder: Path) -> None:
    """Refuse settings that `dynamicrubric plan` would refuse, before they take the place of others.

    Raises:
        UserError: names the key, the value and what is allowed.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".settings-") as made:
        path = Path(made) / PARAMS
        path.write_text(text, encoding="utf-8")
        expand(load_config(path))


def _read(path: Path) -> str:
    with disk_errors("reading the settings", path):
        return path.read_text(encoding="utf-8")


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with disk_errors("writing the settings", path):
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
