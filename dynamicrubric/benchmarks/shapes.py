"""Turns a row as its publisher has it into a plain row: id, subset, prompt, responses, tiers.

One function a shape. A field that is missing or of another kind ends as a `FieldFault`, which names
it; `loaders` makes a refusal of that. Only the fields named here are read: names of models, scores
of other judges and the like never come further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Row = Mapping[str, Any]
Plain = dict[str, Any]


class FieldFault(Exception):
    """A field on its way to `loaders`, never beyond."""

    def __init__(self, field: str, reason: str, got: str) -> None:
        super().__init__(field, reason, got)
        self.field = field
        self.reason = reason
        self.got = got


def shown(value: object) -> str:
    """Return a value of a row in a few words.

    >>> shown(["a", 1]), shown(None), shown("x" * 99)
    ('a list of 2', 'null', 'a text of 99 characters')
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else f"a text of {len(value)} characters"
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else f"the number {value!r}"[:60]
    if isinstance(value, Mapping):
        return f"an object of {len(value)} fields"
    return f"a list of {len(value)}" if isinstance(value, Sequence) else type(value).__name__


def text_of(row: Row, *names: str) -> str:
    """Return the text of the first of some fields that is there."""
    for name in names:
        if row.get(name) is not None:
            if isinstance(row[name], str):
                return str(row[name])
            raise FieldFault(name, "not_text", shown(row[name]))
    reason = "missing_field" if not any(name in row for name in names) else "not_text"
    raise FieldFault(names[0], reason, "no such field" if reason == "missing_field" else "null")


def _texts(row: Row, name: str) -> list[str]:
    """Return a field's texts: a list of them, or a single one."""
    value = row.get(name)
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Sequence):
        raise FieldFault(name, "missing_field" if name not in row else "not_a_list", shown(value))
    for text in value:
        if not isinstance(text, str):
            raise FieldFault(name, "not_text", shown(text))
    return list(value)


def _label(row: Row, name: str, tiers: Mapping[object, list[list[int]]]) -> list[list[int]]:
    """Return the tiers that a label stands for."""
    value = row.get(name)
    known = value if isinstance(value, str | int) and not isinstance(value, bool) else None
    if known is None or known not in tiers:
        reason = "missing_field" if name not in row else "unknown_label"
        raise FieldFault(name, reason, shown(value))
    return tiers[known]


_FIRST: Final = [[0], [1]]
_SECOND: Final = [[1], [0]]
_TIE: Final = [[0, 1]]
_WINNERS: Final[dict[object, list[list[int]]]] = {
    **dict.fromkeys(("model_a", "model_1", "response_1"), _FIRST),
    **dict.fromkeys(("model_b", "model_2", "response_2"), _SECOND),
    **dict.fromkeys(("tie", "tie (bothbad)", "tie (inconsistent)"), _TIE),
}


def plain(row: Row) -> Plain:
    """A row of ours, and of `benchmark files`: as it is."""
    return dict(row)


def chosen_rejected(row: Row) -> Plain:
    """`chosen` over `rejected`, texts or lists of them; RewardBench 1 and 2, RM-Bench."""
    better, worse = _texts(row, "chosen"), _texts(row, "rejected")
    both = range(len(better)), range(len(better), len(better) + len(worse))
    return {
        **_id(row, "id"),
        "subset": _subset(row, "subset", "domain", "category"),
        "prompt": text_of(row, "prompt", "question", "instruction", "input"),
        "responses": [*better, *worse],
        "tiers": [list(tier) for tier in both if tier],
    }


def llmbar(row: Row) -> Plain:
    """`output_1` and `output_2` to `input`; `label` says which is better."""
    return {
        **_id(row, "id"),
        "subset": _subset(row, "subset"),
        "prompt": text_of(row, "input"),
        "responses": [text_of(row, "output_1"), text_of(row, "output_2")],
        "tiers": _label(row, "label", {1: _FIRST, 2: _SECOND}),
    }


def autoj(row: Row) -> Plain:
    """`response 1` and `response 2`; `label` 0, 1 or 2 for a tie; `scenario`."""
    return {
        **_id(row, "id"),
        "subset": _subset(row, "scenario"),
        "prompt": text_of(row, "prompt"),
        "responses": [text_of(row, "response 1"), text_of(row, "response 2")],
        "tiers": _label(row, "label", {0: _FIRST, 1: _SECOND, 2: _TIE}),
    }


def pandalm(row: Row) -> Plain:
    """Three annotators say 0 (tie), 1 or 2; the majority decides, and without one it is a tie."""
    votes = [row.get(f"annotator{n}") for n in (1, 2, 3)]
    for number, vote in enumerate(votes, start=1):
        if vote not in (0, 1, 2) or isinstance(vote, bool):
            raise FieldFault(f"annotator{number}", "unknown_label", shown(vote))
    winners = [vote for vote in (1, 2) if votes.count(vote) >= 2]
    given = row.get("input") or ""
    instruction = text_of(row, "instruction")
    return {
        **_id(row, "idx"),
        "subset": _subset(row, "cmp_key"),
        "prompt": f"{instruction}\n\nInput: {given}" if given else instruction,
        "responses": [text_of(row, "response1"), text_of(row, "response2")],
        "tiers": {1: _FIRST, 2: _SECOND}[winners[0]] if winners else _TIE,
    }


def mt_bench_human(row: Row) -> Plain:
    """One person's vote on two conversations, about its first turn or about both."""
    first, second = (_conversation(row, f"conversation_{side}") for side in "ab")
    turn = row.get("turn")
    if turn not in (1, 2) or isinstance(turn, bool):
        raise FieldFault("turn", "unknown_label", shown(turn))
    for side, said in (("a", first), ("b", second)):
        if len(said) < 2 * turn:
            raise FieldFault(f"conversation_{side}", "too_few_turns", f"{len(said)} texts")
    mark = "\n\n[Second turn]\n"
    return {
        "subset": f"turn {turn}",
        "prompt": mark.join(first[0 : 2 * turn : 2]),
        "responses": [mark.join(said[1 : 2 * turn : 2]) for said in (first, second)],
        "tiers": _label(row, "winner", _WINNERS),
    }


def hhh(row: Row) -> Plain:
    """`targets.choices`, of which `targets.labels` marks the good one."""
    targets = row.get("targets")
    if not isinstance(targets, Mapping):
        raise FieldFault("targets", "not_an_object", shown(targets))
    choices, labels = _texts(targets, "choices"), targets.get("labels")
    if not isinstance(labels, Sequence) or sorted(map(str, labels)) != ["0", "1"]:
        raise FieldFault("targets.labels", "unknown_label", shown(labels))
    return {
        "subset": _subset(row, "subset"),
        "prompt": text_of(row, "input"),
        "responses": choices,
        "tiers": _FIRST if str(labels[0]) == "1" else _SECOND,
    }


def judgebench(row: Row) -> Plain:
    """`response_A` and `response_B`; `label` is "A>B" or "B>A"."""
    return {
        **_id(row, "pair_id"),
        "subset": _subset(row, "source"),
        "prompt": text_of(row, "question"),
        "responses": [text_of(row, "response_A"), text_of(row, "response_B")],
        "tiers": _label(row, "label", {"A>B": _FIRST, "B>A": _SECOND}),
    }


def ppe_human(row: Row) -> Plain:
    """`response_1` and `response_2`; `winner` names a model or a tie."""
    return {
        **_id(row, "question_id"),
        "subset": _subset(row, "language"),
        "prompt": text_of(row, "prompt"),
        "responses": [text_of(row, "response_1"), text_of(row, "response_2")],
        "tiers": _label(row, "winner", _WINNERS),
    }


def messages(row: Row) -> Plain:
    """`chosen` and `rejected` as conversations, of which the last message counts."""
    said = [_conversation(row, name) for name in ("chosen", "rejected")]
    for name, texts in zip(("chosen", "rejected"), said, strict=True):
        if not texts:
            raise FieldFault(name, "too_few_turns", "an empty list")
    scores = [row.get("score_chosen"), row.get("score_rejected")]
    return {
        **_id(row, "prompt_id"),
        "prompt": text_of(row, "prompt"),
        "responses": [texts[-1] for texts in said],
        "tiers": _TIE if scores[0] is not None and scores[0] == scores[1] else _FIRST,
    }


def _conversation(row: Row, name: str) -> list[str]:
    value = row.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise FieldFault(name, "missing_field" if name not in row else "not_a_list", shown(value))
    texts = [one.get("content") if isinstance(one, Mapping) else one for one in value]
    for text in texts:
        if not isinstance(text, str):
            raise FieldFault(name, "not_text", shown(text))
    return [str(text) for text in texts]


def _id(row: Row, name: str) -> Plain:
    return {"id": row[name]} if row.get(name) is not None else {}


def _subset(row: Row, *names: str) -> str | None:
    value = next((row[name] for name in names if row.get(name) is not None), None)
    return None if value is None else str(value)


SHAPES: Final[dict[str, Callable[[Row], Plain]]] = {
    "plain": plain,
    "chosen_rejected": chosen_rejected,
    "llmbar": llmbar,
    "autoj": autoj,
    "pandalm": pandalm,
    "mt_bench_human": mt_bench_human,
    "hhh": hhh,
    "judgebench": judgebench,
    "ppe_human": ppe_human,
    "messages": messages,
}
"""By name, as `catalog` has them."""
