"""Hashes of files, and of values by their one JSON text; and what differs between two values."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"


def sha256_of(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical_json(value: JSON) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: the value has no JSON form that reads back the same (NaN, infinity, a key that
            is not a string, an object); the message names the place.

    >>> canonical_json({"b": (1, 2.0), "a": None})
    '{"a":null,"b":[1,2.0]}'
    """
    checked = _checked(value, "")
    return json.dumps(
        checked, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def hash_of(value: JSON) -> str:
    """Return the hex SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode("utf-8")).hexdigest()


def changed_fields(old: JSON, new: JSON, place: str = "") -> list[str]:
    """Say which fields differ, one line each, with both values.

    >>> changed_fields({"lr": 0.1, "grpo": {"k": 6}}, {"lr": 0.2, "grpo": {"k": 6}, "seed": 1})
    ['lr: 0.1 -> 0.2', 'seed: absent -> 1']
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        lines = []
        for key in sorted({*old, *new}):
            inner = f"{place}.{key}" if place else key
            if key not in old or key not in new:
                lines.append(f"{inner}: {_shown(old, key)} -> {_shown(new, key)}")
            else:
                lines += changed_fields(old[key], new[key], inner)
        return lines
    before, after = canonical_json(old), canonical_json(new)
    return [] if before == after else [f"{place}: {before} -> {after}"]


def _shown(values: Mapping[str, JSON], key: str) -> str:
    return canonical_json(values[key]) if key in values else "absent"


def _checked(value: JSON, place: str) -> JSON:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(
                f"identity field {place or '(top)'} is {value}, which JSON cannot hold"
            )
        return value
    if isinstance(value, Mapping):
        return {_key(key, place): _checked(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_checked(item, f"{place}[{n}]") for n, item in enumerate(value)]
    raise ValueError(f"identity field {place or '(top)'} is a {type(value).__name__}, not JSON")


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"identity field {place or '(top)'} has the key {key!r}, not a string")
    return key
