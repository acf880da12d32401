"""Rows of a file as response sets: what can be scored of each row, and why what cannot be cannot.

A row that is no response set is refused with the field at fault; a place of a set without a text is
left unscored and the others are scored. Neither stops the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.data.formats import Origin, format_of, is_text, parse_row, parse_set
from dynamicrubric.data.rows import RowFault
from dynamicrubric.doors.documents import set_of
from dynamicrubric.doors.messages import completion_text
from dynamicrubric.evaluators.judging import ResponseSet

NOT_TEXT: Final = "response_not_text"
_FIELDS: Final[Mapping[RowFault, str]] = {
    RowFault.NO_PROMPT: "prompt",
    RowFault.EMPTY_PROMPT: "prompt",
    RowFault.NOT_A_CONVERSATION: "prompt",
    RowFault.LONE_SURROGATE: "prompt",
    RowFault.NO_RESPONSES: "responses",
}
_OF_RANKING: Final = frozenset(
    {RowFault.RANK_NOT_A_NUMBER, RowFault.NOT_A_PERMUTATION, RowFault.TIERS_DISAGREE}
)


@dataclass(frozen=True)
class FileRow:
    """One row of a file.

    Attributes:
        place: where it is ("line 7").
        name: its id, as text; None if it has none.
        responses: the set; None for a row that is none.
        fault: why it is none, a short name; None if it is one.
        field: the field at fault.
        notes: what is odd about it, though it is scored.
    """

    place: str
    name: str | None
    responses: ResponseSet | None
    fault: str | None = None
    field: str | None = None
    notes: tuple[str, ...] = ()


def read_rows(
    values: Iterator[tuple[str, object]], prompt_ids: Mapping[str, str] | None = None
) -> Iterator[FileRow]:
    """Yield a row for each value of a file, in order.

    Args:
        values: place and value, or its fault, as `data.sources` opens them.
        prompt_ids: id of each prompt that the world knows, by its text.
    """
    seen: dict[str, str] = {}
    for place, value in values:
        row = _row(place, value, prompt_ids or {})
        if row.name is not None and seen.setdefault(row.name, place) != place:
            note = f"duplicate_id: also at {seen[row.name]}"
            row = FileRow(place, row.name, row.responses, row.fault, row.field, (note, *row.notes))
        yield row


def _row(place: str, value: object, prompt_ids: Mapping[str, str]) -> FileRow:
    name, notes = _name(value)
    found = value if isinstance(value, RowFault) else parse_set(value)
    if isinstance(found, RowFault):
        return FileRow(place, name, None, str(found), _FIELDS.get(found), notes)
    assert isinstance(value, Mapping)
    prompt, given = found
    texts = [completion_text(one) for one in given]
    failures = [_failure(one, text) for one, text in zip(given, texts, strict=True)]
    kept = [text if failed is None else None for text, failed in zip(texts, failures, strict=True)]
    responses = set_of(
        prompt,
        kept,
        prompt_id=prompt_ids.get(prompt),
        failures=failures,
    )
    return FileRow(place, name, responses, notes=(*notes, *_ranking_notes(value)))


def _failure(given: object, text: str | None) -> str | None:
    """Return why a response is not scored, None if it is."""
    if given is None:
        return "no_text"
    if text is None:
        return NOT_TEXT
    return None if is_text(text) else str(RowFault.LONE_SURROGATE)


def _name(value: object) -> tuple[str | None, tuple[str, ...]]:
    """Return a row's id, and a note about one that is none."""
    given = value.get("id") if isinstance(value, Mapping) else None
    if given is None:
        return None, ()
    if isinstance(given, str | int) and not isinstance(given, bool) and is_text(str(given)):
        return str(given), ()
    return None, ("id_not_text",)


def _ranking_notes(fields: Mapping[str, object]) -> tuple[str, ...]:
    """Name what is wrong with a row's ranking: no evaluator reads it, whoever joins it later does.

    The responses are stand-ins, so that a ranking is told from a fault of theirs.
    """
    shape = format_of(fields)
    if shape is None:
        return ()
    key = "responses" if shape == "plain" else "answers"
    stand_ins = {**fields, key: _readable(fields[key])}
    fault = parse_row(stand_ins, shape, Origin("", ""))
    if isinstance(fault, RowFault) and fault in _OF_RANKING:
        return (f"ranking_unusable: {fault}",)
    return ()


def _readable(given: object) -> object:
    if not isinstance(given, Sequence) or isinstance(given, str):
        return given
    return [
        {**one, "answer": "text"} if isinstance(one, Mapping) and "rank" in one else "text"
        for one in given
    ]
