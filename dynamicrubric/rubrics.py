"""Rubric text in, rubric or named reason out: the one parse boundary for generated rubrics.

`parse_rubric` reads exactly one shape, a JSON list of `{"criterion": text, "weight": 1..5}`, and
never repairs: a code fence, a sentence before the list or a cut-off end makes the rubric invalid.
Repairing would teach the generator that anything goes and would turn a truncated rubric into a
short one. It never raises for any text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Final, Literal, NoReturn

from dynamicrubric.types import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    InvalidReason,
    InvalidRubric,
    Item,
    Rubric,
)

FinishReason = Literal["stop", "length"]
"""How an engine ended a text: at an end token, or at the token limit."""

_JSON_SPACE: Final = " \t\n\r"
_MAX_DIGITS: Final = 32
_FIELDS: Final = frozenset({"criterion", "weight"})
_BAD_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Only punctuation that ends a word: in "ends with ?" the mark is the criterion.
_FINAL_MARKS: Final = re.compile(r"(?<=\w)[.,;:!?。]+$")
_MAX_DETAIL: Final = 80


class _RefusedError(Exception):
    """Carries a reason out of the JSON reader's hooks; never leaves this module."""

    def __init__(self, reason: InvalidReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def parse_rubric(
    text: str,
    *,
    max_items: int,
    min_items: int = 1,
    finish_reason: FinishReason = "stop",
    max_criterion_chars: int = 300,
) -> Rubric | InvalidRubric:
    r"""Read a generator's text as a rubric.

    Args:
        text: the generated text, special tokens already removed.
        max_items: most items a rubric may have, at least 1.
        min_items: fewest items it may have, at least 1.
        finish_reason: "length" makes any text invalid, also one that happens to parse.
        max_criterion_chars: longest criterion, in code points.

    Returns:
        The rubric with its criteria exactly as written, or the first reason against it.

    Raises:
        ValueError: for limits below 1 or an unknown finish reason; never for a text.

    >>> parse_rubric('[{"criterion": "Greets the reader.", "weight": 3}]', max_items=4)
    Rubric(items=(Item(criterion='Greets the reader.', weight=3),))
    >>> parse_rubric('[{"criterion": "Greets.", "weight": 3}, {"te', max_items=4,
    ...              finish_reason="length").reason.value
    'truncated'
    """
    if not 1 <= min_items <= max_items or max_criterion_chars < 1:
        raise ValueError(
            f"impossible limits: {min_items} to {max_items} items, {max_criterion_chars} characters"
        )
    if finish_reason not in ("stop", "length"):
        raise ValueError(f"unknown finish reason {finish_reason!r}")
    try:
        if finish_reason == "length":
            _refuse(InvalidReason.TRUNCATED, "cut off at the token limit")
        return _read_rubric(_read_json(text), min_items, max_items, max_criterion_chars)
    except _RefusedError as refusal:
        return InvalidRubric(refusal.reason, refusal.detail)


def render_rubric(rubric: Rubric) -> str:
    """Compact JSON that `parse_rubric` reads back to an equal rubric.

    >>> render_rubric(Rubric((Item("Grüßt.", 2),)))
    '[{"criterion":"Grüßt.","weight":2}]'
    """
    items = [{"criterion": item.criterion, "weight": item.weight} for item in rubric.items]
    return json.dumps(items, ensure_ascii=False, separators=(",", ":"))


def rubric_schema(
    *, max_items: int, min_items: int = 1, max_criterion_chars: int = 300
) -> dict[str, object]:
    """JSON schema of a rubric's text, for engines that can keep a completion to one.

    A text of this form is a rubric unless it says a criterion twice, which no schema can rule out.
    Narrower than `parse_rubric` in one thing: a criterion begins with a letter or a digit.

    Args:
        max_items: most items.
        min_items: fewest items.
        max_criterion_chars: longest criterion, in code points.
    """
    rest = rf"[^\p{{Cc}}\p{{Zl}}\p{{Zp}}]{{0,{max_criterion_chars - 1}}}"
    item = {
        "type": "object",
        "properties": {
            "criterion": {"type": "string", "pattern": rf"^[\p{{L}}\p{{N}}]{rest}$"},
            "weight": {"type": "integer", "minimum": MIN_WEIGHT, "maximum": MAX_WEIGHT},
        },
        "required": ["criterion", "weight"],
        "additionalProperties": False,
    }
    return {"type": "array", "items": item, "minItems": min_items, "maxItems": max_items}


def normalise_criterion(text: str) -> str:
    """The form in which two criteria count as the same.

    Compatibility forms, case, runs of white space, invisible format characters and the full stop
    (or the like) behind the last word do not tell criteria apart; any other mark does, since "ends
    with ?" and "ends with !" are different questions.

    >>> normalise_criterion("  Greets the  READER. ")
    'greets the reader'
    """
    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return _FINAL_MARKS.sub("", " ".join(folded.split()))


def _refuse(reason: InvalidReason, detail: str) -> NoReturn:
    raise _RefusedError(reason, detail)


def _shown(value: object) -> str:
    text = ascii(value)  # ASCII: a detail with a lone surrogate could not be written to a log
    return text if len(text) <= _MAX_DETAIL else f"{text[:_MAX_DETAIL]}..."


def _read_json(text: str) -> object:
    start = len(text) - len(text.lstrip(_JSON_SPACE))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        _refuse(InvalidReason.NOT_JSON, f"{error.msg} at {error.pos}: {_shown(text[start:])}")
    except RecursionError:
        _refuse(InvalidReason.TOO_DEEP, f"nested too deep: {_shown(text[start:])}")
    rest = text[end:].strip(_JSON_SPACE)
    if rest:
        _refuse(InvalidReason.TRAILING_TEXT, f"after the JSON value: {_shown(rest)}")
    return value


def _read_integer(digits: str) -> int:
    # int() is quadratic in the digits, and raises past the interpreter's own limit.
    if len(digits) > _MAX_DIGITS:
        _refuse(InvalidReason.ABSURD_NUMBER, f"an integer of {len(digits)} digits")
    return int(digits)


def _read_constant(name: str) -> NoReturn:
    _refuse(InvalidReason.NOT_FINITE, f"{name} is not JSON")


def _read_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        _refuse(InvalidReason.DUPLICATE_KEY, f"field {_shown(twice)} appears twice in one object")
    return fields


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_read_object, parse_int=_read_integer, parse_constant=_read_constant
)


def _read_rubric(value: object, min_items: int, max_items: int, max_criterion_chars: int) -> Rubric:
    if not isinstance(value, list):
        _refuse(InvalidReason.NOT_A_LIST, f"not a list of items: {_shown(value)}")
    if not value:
        _refuse(InvalidReason.NO_ITEMS, "an empty list")
    if len(value) < min_items:
        _refuse(InvalidReason.TOO_FEW_ITEMS, f"{len(value)} items, at least {min_items}")
    if len(value) > max_items:
        _refuse(InvalidReason.TOO_MANY_ITEMS, f"{len(value)} items, at most {max_items}")
    items: list[Item] = []
    seen: set[str] = set()
    for number, entry in enumerate(value, start=1):
        item = _read_item(entry, number, max_criterion_chars)
        normal = normalise_criterion(item.criterion)
        if normal in seen:
            _refuse(
                InvalidReason.DUPLICATE_CRITERION, f"item {number}: {_shown(item.criterion)} again"
            )
        seen.add(normal)
        items.append(item)
    return Rubric(tuple(items))


def _read_item(entry: object, number: int, max_criterion_chars: int) -> Item:
    if not isinstance(entry, dict):
        _refuse(InvalidReason.ITEM_NOT_OBJECT, f"item {number}: {_shown(entry)}")
    unknown = sorted(entry.keys() - _FIELDS)
    if unknown:
        _refuse(InvalidReason.UNKNOWN_FIELD, f"item {number}: field {_shown(unknown[0])}")
    if "criterion" not in entry:
        _refuse(InvalidReason.MISSING_CRITERION, f"item {number}")
    criterion = _read_criterion(entry["criterion"], number, max_criterion_chars)
    if "weight" not in entry:
        _refuse(InvalidReason.MISSING_WEIGHT, f"item {number}")
    return Item(criterion, _read_weight(entry["weight"], number))


def _read_criterion(value: object, number: int, max_chars: int) -> str:
    if not isinstance(value, str):
        _refuse(InvalidReason.CRITERION_NOT_TEXT, f"item {number}: {_shown(value)}")
    if len(value) > max_chars:
        _refuse(
            InvalidReason.CRITERION_TOO_LONG,
            f"item {number}: {len(value)} characters, at most {max_chars}",
        )
    if any(unicodedata.category(char) in _BAD_CATEGORIES for char in value):
        _refuse(InvalidReason.BAD_CHARACTER, f"item {number}: {_shown(value)}")
    if not any(char.isalnum() for char in value):
        _refuse(InvalidReason.EMPTY_CRITERION, f"item {number}: {_shown(value)}")
    return value


def _read_weight(value: object, number: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(InvalidReason.WEIGHT_NOT_INTEGER, f"item {number}: {_shown(value)}")
    if not MIN_WEIGHT <= value <= MAX_WEIGHT:
        _refuse(
            InvalidReason.WEIGHT_OUT_OF_RANGE,
            f"item {number}: {value} is outside {MIN_WEIGHT}..{MAX_WEIGHT}",
        )
    return value
