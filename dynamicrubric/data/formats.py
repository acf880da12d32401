r"""Turns one object of a file into an `AnchorRow`, or says which `RowFault` it has.

Two shapes are known, told apart by their fields:

- Nectar: `prompt` in the form "\n\nHuman: ...\n\nAssistant: ", several turns long or not, and
  `answers`, each with `answer`, `model` and `rank` (1 is best; equal ranks tie). No id.
- plain: `id`, `prompt` (or `turns`), `responses`, and `ranking` (places of the responses, best
  first; null if all tie), `tiers` (the same, tied ones together) or both; `source`, `license`.

Only these fields are read. Model names, scores, judges' notes and the like never leave this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from dynamicrubric.data.rows import AnchorRow, RowFault, joined, text_hash

Format = Literal["nectar", "plain"]
_SPEAKER: Final = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
_PROMPT_FIELDS: Final = ("prompt", "question", "instruction")
Tiers = list[list[int]]
"""Places of responses, best first, tied ones together."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of rows before they are read.

    Attributes:
        name: the file's or the hub repository's name: source of rows that name none.
        license: of rows that name none.
    """

    name: str
    license: str


class _FaultError(Exception):
    """A fault on its way to `parse_row`, never beyond."""

    def __init__(self, fault: RowFault) -> None:
        super().__init__(fault)
        self.fault = fault


def format_of(fields: Mapping[str, Any]) -> Format | None:
    """Return the shape of a row by its fields, None for an unknown one."""
    if "answers" in fields and "prompt" in fields:
        return "nectar"
    return "plain" if "responses" in fields and {"prompt", "turns"} & set(fields) else None


def parse_row(value: object, shape: Format, origin: Origin) -> AnchorRow | RowFault:
    """Read one row of a file.

    Args:
        value: the JSON value of a line, or a row of a table as a dict.
        shape: the file's format.
        origin: what stands in for fields that are not there.
    """
    if not isinstance(value, Mapping):
        return RowFault.NOT_AN_OBJECT
    parse: Callable[[Mapping[str, Any], Origin], AnchorRow]
    parse = _nectar_row if shape == "nectar" else _plain_row
    try:
        row = parse(value, origin)
    except _FaultError as error:
        return error.fault
    return RowFault.LONE_SURROGATE if _has_surrogate(row) else row


def parse_set(value: object) -> tuple[str, Sequence[object]] | RowFault:
    """Read the prompt and the responses of a row as they stand: whether it is ranked is no matter.

    Args:
        value: the JSON value of a line, or a row of a table as a dict.

    Returns:
        The prompt's text, and what stands in the place of each response, text or not.
    """
    if not isinstance(value, Mapping):
        return RowFault.NOT_AN_OBJECT
    nectar = format_of(value) == "nectar"
    try:
        if nectar:
            turns = _conversation(_text(value.get("prompt"), RowFault.NO_PROMPT))
        else:
            turns = _plain_turns(value)
    except _FaultError as error:
        return error.fault
    if not len(turns) % 2:
        return RowFault.NOT_A_CONVERSATION
    found = value.get("answers" if nectar else "responses")
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        return RowFault.NO_RESPONSES
    if nectar:
        found = [one.get("answer") if isinstance(one, Mapping) else one for one in found]
    prompt = joined(turns)
    return RowFault.LONE_SURROGATE if not is_text(prompt) else (prompt, found)


def is_text(value: object) -> bool:
    """Say whether a value is text that UTF-8 can hold."""
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class TextRow:
    """What a contamination check reads of a row: no order is needed.

    Attributes:
        id: name of the row in its file; the number of the row if it has none.
        prompts: the user's turns, and the conversation if there are several.
        responses: as they come; the reference answer of a row that has one.
        anchors: the row as an anchor list, if it is one.
    """

    id: str
    prompts: tuple[str, ...]
    responses: tuple[str, ...]
    anchors: AnchorRow | None = None

    @classmethod
    def of(cls, row: AnchorRow) -> TextRow:
        """Return the texts of an anchor row."""
        several = (row.prompt,) if len(row.turns) > 1 else ()
        return cls(row.id, (*several, *row.user_turns), row.responses, row)


def parse_texts(value: object, number: int, origin: Origin) -> TextRow | RowFault:
    """Read the texts of any row that has a prompt: an anchor list, a pair, a question.

    Args:
        value: the JSON value of a line, or a row of a table as a dict.
        number: of the row in its file, from 1: its id if it has none.
        origin: as for `parse_row`.
    """
    if not isinstance(value, Mapping):
        return RowFault.NOT_AN_OBJECT
    shape = format_of(value)
    row = parse_row(value, shape, origin) if shape else None
    if isinstance(row, AnchorRow):
        return TextRow.of(row)
    if row is RowFault.LONE_SURROGATE or (shape == "nectar" and row is not None):
        return row
    try:
        turns = _plain_turns(value)
    except _FaultError as error:
        return error.fault
    given = value.get("responses", [value.get("answer")])
    responses = given if isinstance(given, Sequence) and not isinstance(given, str) else []
    texts = tuple(text for text in responses if isinstance(text, str))
    name = next((value[key] for key in ("id", "task_id", "key") if key in value), number)
    return TextRow(str(name), turns, texts)


def _nectar_row(fields: Mapping[str, Any], origin: Origin) -> AnchorRow:
    turns = _conversation(_text(fields.get("prompt"), RowFault.NO_PROMPT))
    answers = fields.get("answers")
    if not isinstance(answers, Sequence) or isinstance(answers, str) or len(answers) < 2:
        raise _FaultError(RowFault.NO_RESPONSES)
    ranked: list[tuple[float, str]] = []
    for answer in answers:
        if not isinstance(answer, Mapping):
            raise _FaultError(RowFault.RESPONSE_NOT_TEXT)
        text = _text(answer.get("answer"), RowFault.RESPONSE_NOT_TEXT)
        ranked.append((_rank(answer.get("rank")), text))
    ranked.sort(key=lambda pair: pair[0])  # stable: a tie keeps the file's order
    ranks = [rank for rank, _ in ranked]
    sources = fields.get("source")
    named = [part for part in sources if part] if isinstance(sources, list | tuple) else []
    responses = tuple(text for _, text in ranked)
    tiers = tuple(ranks.count(rank) for rank in dict.fromkeys(ranks))
    return AnchorRow(
        id=_name(fields) or "nectar-" + text_hash(repr((turns, responses, tiers))).hex()[:16],
        turns=turns,
        responses=responses,
        tiers=tiers,
        source=f"{origin.name} ({', '.join(sorted(map(str, named)))})" if named else origin.name,
        license=origin.license,
    )


def _plain_row(fields: Mapping[str, Any], origin: Origin) -> AnchorRow:
    turns = _plain_turns(fields)
    if not len(turns) % 2:
        raise _FaultError(RowFault.NOT_A_CONVERSATION)
    responses = fields.get("responses")
    if not isinstance(responses, Sequence) or isinstance(responses, str) or len(responses) < 2:
        raise _FaultError(RowFault.NO_RESPONSES)
    texts = [_text(text, RowFault.RESPONSE_NOT_TEXT) for text in responses]
    tiers = _tiers(fields.get("ranking"), fields.get("tiers"), len(texts))
    ordered = tuple(texts[place] for tier in tiers for place in tier)
    sizes = tuple(len(tier) for tier in tiers)
    return AnchorRow(
        id=_name(fields) or "row-" + text_hash(repr((turns, ordered, sizes))).hex()[:16],
        turns=turns,
        responses=ordered,
        tiers=sizes,
        source=str(fields.get("source") or origin.name),
        license=str(fields.get("license") or origin.license),
    )


def _conversation(prompt: str) -> tuple[str, ...]:
    r"""Return the turns of a prompt in Nectar's form.

    A blank line and "Human:" inside a text cannot be told from a turn, so such a row is a fault.
    """
    if not prompt.strip():
        raise _FaultError(RowFault.EMPTY_PROMPT)
    before, *parts = _SPEAKER.split(prompt)
    speakers, texts = parts[::2], [text.strip() for text in parts[1::2]]
    expected = ["Human", "Assistant"] * (len(speakers) // 2)
    if before.strip() or not speakers or speakers != expected or texts[-1]:
        raise _FaultError(RowFault.NOT_A_CONVERSATION)
    if not all(texts[:-1]):
        raise _FaultError(RowFault.EMPTY_PROMPT)
    return tuple(texts[:-1])


def _plain_turns(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return `turns` of a row with several prompts, else its one prompt."""
    prompt = next((fields[key] for key in _PROMPT_FIELDS if fields.get(key) is not None), None)
    turns = fields.get("turns")
    if isinstance(turns, list | tuple) and turns:
        found = tuple(_text(turn, RowFault.NO_PROMPT) for turn in turns)
    else:
        found = (_text(prompt, RowFault.NO_PROMPT),)
    if not all(text.strip() for text in found):
        raise _FaultError(RowFault.EMPTY_PROMPT)
    return found


def _tiers(ranking: object, tiers: object, count: int) -> Tiers:
    """Return the tiers of a row's `ranking` and `tiers`, of which one may be absent."""
    if tiers is None and ranking is None:
        raise _FaultError(RowFault.NO_RANK)
    order = _permutation(ranking, count) if ranking is not None else None
    if tiers is None:
        assert order is not None
        return [[place] for place in order]
    if not isinstance(tiers, Sequence) or not all(isinstance(t, list | tuple) and t for t in tiers):
        raise _FaultError(RowFault.NOT_A_PERMUTATION)
    flat = _permutation([place for tier in tiers for place in tier], count)
    starts = [0]
    for tier in tiers:
        starts.append(starts[-1] + len(tier))
    places = order or flat
    found = [places[first:last] for first, last in pairwise(starts)]
    if any(set(one) != set(other) for one, other in zip(found, tiers, strict=True)):
        raise _FaultError(RowFault.TIERS_DISAGREE)
    return found


def _permutation(places: object, count: int) -> list[int]:
    if not isinstance(places, Sequence) or isinstance(places, str):
        raise _FaultError(RowFault.NOT_A_PERMUTATION)
    if any(isinstance(place, bool) or not isinstance(place, int) for place in places):
        raise _FaultError(RowFault.NOT_A_PERMUTATION)
    if sorted(places) != list(range(count)):
        raise _FaultError(RowFault.NOT_A_PERMUTATION)
    return list(places)


def _rank(value: object) -> float:
    if value is None:
        raise _FaultError(RowFault.NO_RANK)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _FaultError(RowFault.RANK_NOT_A_NUMBER)
    return float(value)


def _text(value: object, fault: RowFault) -> str:
    if not isinstance(value, str):
        raise _FaultError(fault)
    return value


def _name(fields: Mapping[str, Any]) -> str | None:
    name = fields.get("id")
    return str(name) if isinstance(name, str | int) and str(name) else None


def _has_surrogate(row: AnchorRow) -> bool:
    return not is_text("\0".join((row.id, *row.turns, *row.responses, row.source, row.license)))
