"""Validation errors in words: which key, what value it has, what is allowed."""

from __future__ import annotations

import difflib
import math
import re
from datetime import date
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

ARM_NAME_RULE = "a name of 1 to 32 characters a-z, 0-9 and _ that starts with a letter"


MAX_PROBLEMS = 10
_SECRET = re.compile(r"(key|token|secret|password|authorization)$", re.IGNORECASE)
"""What a key is called under which somebody may have put a secret: no message shows it."""


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[tuple[str, str | None]]:
    """Say pydantic's problems in words, the first `MAX_PROBLEMS` of them.

    Args:
        error: what pydantic raised.
        model: the model that was validated; it knows which keys there are.

    Returns:
        For each, what was found ("study.rounds = 0") and what is allowed, None where the first says
        both.
    """
    problems = error.errors(include_url=False)
    # A misspelt key is missing under its right name as well: the spelling is what to tell.
    misspelt = {
        (*problem["loc"][:-1], _close_key(model, problem["loc"]))
        for problem in problems
        if problem["type"] == "extra_forbidden"
    }
    problems = [p for p in problems if p["type"] != "missing" or p["loc"] not in misspelt]
    # A list with a bad entry is too short as well: the entry is what to tell.
    inner = {p["loc"][:length] for p in problems for length in range(len(p["loc"]))}
    problems = [p for p in problems if p["loc"] not in inner] or problems
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    found = [_problem(problem, model) for problem in problems[:MAX_PROBLEMS]]
    more = len(problems) - len(found)
    return [*found, (f"{more} more", None)] if more else found


def all_problems(error: ValidationError, model: type[BaseModel]) -> tuple[str, str | None]:
    """Say all problems: one as what was found and what is allowed, several as a line each."""
    found = problems_of(error, model)
    if len(found) == 1:
        return found[0]
    lines = "".join(f"  {one_line(*problem)}\n" for problem in found)
    return f"several problems:\n{lines}", None


def one_line(got: str, expected: str | None) -> str:
    """Join the two halves of a problem for an error that has room for one text."""
    return f"{got}; expected {expected}" if expected else got


def _problem(problem: ErrorDetails, model: type[BaseModel]) -> tuple[str, str | None]:
    location, kind, message = problem["loc"], problem["type"], problem["msg"]
    value = problem["input"]
    plain, _ = _place(model, location)
    key = ".".join(_part(part) for part in plain)
    if location and location[-1] == "[key]":
        parent = ".".join(_part(part) for part in location[:-2])
        return f"the name {_short(value)} in {parent}", ARM_NAME_RULE
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag, rule = f"{key}.{_tag_key(problem)}", _tags(problem)
        named = isinstance(value, dict) and _tag_key(problem) in value
        return (f"{tag} = {_short(value[_tag_key(problem)])}" if named else f"no key {tag}"), rule
    if kind == "value_error":
        message = re.sub(r"^Value error, ", "", message)
        return (f"{key}: {message}" if key else message), None
    if kind in ("extra_forbidden", "invalid_key"):
        hidden = isinstance(value, dict) or _SECRET.search(str(location[-1])) is not None
        shown = "" if hidden else f" = {_short(value)}"
        return f"unknown key {key}{shown}", _allowed_keys(model, location)
    if kind == "missing":
        return f"no key {key}", "every key to be there; none has a default"
    return (f"{key} = {_short(value)}" if key else _short(value)), _rule(kind, message)


def _rule(kind: str, message: str) -> str:
    """Say what is allowed without the words of Python's type system."""
    if kind in ("model_type", "model_attributes_type", "dict_type", "mapping_type"):
        return "a mapping of keys to values"
    if kind in ("tuple_type", "list_type"):
        return "a list, such as [1, 2, 3]"
    if kind == "string_pattern_mismatch":
        return ARM_NAME_RULE
    if kind == "string_too_short":
        return re.sub(r"^String should have ", "text of ", message)
    if kind in ("too_short", "too_long"):
        return re.sub(r"^\w+ should have ", "", message).replace(" after validation", "")
    return re.sub(r"^(Input|String) should (be )?", "", message)


def _allowed_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Name the keys there are at a location, and the one that may have been meant."""
    names = _keys_at(model, location)
    if not names:
        return "only known keys"
    close = _close_key(model, location)
    hint = f" (did you mean {close}?)" if close else ""
    return f"one of {', '.join(names)}{hint}"


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the keys beside the last part of a location; none where they are free."""
    _, holder = _place(model, location)
    return list(holder.model_fields) if _is_section(holder) else []


def _place(
    model: type[BaseModel], location: tuple[int | str, ...]
) -> tuple[tuple[int | str, ...], Any]:
    """Return a location without the tags of variants, which no file has, and what holds its end."""
    kept: list[int | str] = []
    holder: Any = model
    below: Any = None
    for part in location:
        if kept:
            choices = _variants(below)
            if len(choices) > 1 and part in choices:
                below = choices[str(part)]
                continue
            holder = choices.get("", below)
        kept.append(part)
        below = _below(holder, part)
    return tuple(kept), holder


def _below(section: Any, part: int | str) -> Any:  # noqa: ANN401 - a type, however it is written
    """Return the type of what a key of a section leads to, or a name in a mapping, or a number."""
    if _is_section(section):
        field = section.model_fields.get(str(part))
        return _bare(None if field is None else field.annotation)
    found = next(reversed(get_args(section)), None)
    return _bare(None if found is Ellipsis else found)


def _variants(annotation: object) -> dict[str, type[BaseModel]]:
    """Return the sections that a field can hold, by tag; one alone has the tag ''."""
    if _is_section(annotation):
        return {"": annotation}  # type: ignore[dict-item]
    found: dict[str, type[BaseModel]] = {}
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    for member in members:
        kind, *metadata = get_args(member) if get_origin(member) is Annotated else (member,)
        if _is_section(kind):
            tags = [one.tag for one in metadata if isinstance(one, Tag)]
            fields = kind.model_fields
            name = fields.get("name") or fields.get("kind")
            found[tags[0] if tags else str(get_args(name.annotation)[0]) if name else ""] = kind
    return found


def _tag_key(problem: ErrorDetails) -> str:
    return str(problem.get("ctx", {}).get("discriminator", "name")).strip("'")


def _tags(problem: ErrorDetails) -> str | None:
    tags = problem.get("ctx", {}).get("expected_tags")
    return f"one of {tags}" if tags else "every key to be there; none has a default"


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _bare(annotation: Any) -> Any:  # noqa: ANN401 - a type, however it is written
    """Return what stands in an `Annotated`, and a tuple of any length as a list."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    arguments = get_args(annotation)
    if get_origin(annotation) is tuple and arguments[-1:] == (Ellipsis,):
        return list[arguments[0]]  # type: ignore[valid-type]  # a value, made as the code runs
    return annotation


def _close_key(model: type[BaseModel], location: tuple[int | str, ...]) -> str | None:
    """Return the key that may have been meant."""
    close = difflib.get_close_matches(str(location[-1]), _keys_at(model, location), n=1)
    return close[0] if close else None


def _part(part: int | str) -> str:
    """Show a part of a key as it is if it is plain, quoted and cut if it is not."""
    text = str(part)
    return text if re.fullmatch(r"\w{1,64}", text) else _short(text)


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "{...}" if value else "{}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | date):  # as YAML writes them
        return "null" if value is None else str(value).lower()
    if isinstance(value, tuple):
        value = list(value)
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
