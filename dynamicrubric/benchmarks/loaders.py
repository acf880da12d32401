"""Reads data sets into `BenchItem`s; a row that is none is a `Refusal` that names place and field.

Files are JSON Lines or Parquet, in the shape of the data set as its publisher has it or in the
plain one (prompt, responses, ranking or tiers), told apart row by row. Nothing is lost: the rows
read are the items and the refusals. The parse boundary is that of all ranked data
(`data.formats.parse_row`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dynamicrubric.benchmarks.catalog import CATALOG, Known, known
from dynamicrubric.benchmarks.schema import BenchItem, Refusal, name_of_prompt, subset_named
from dynamicrubric.benchmarks.shapes import SHAPES, FieldFault, shown
from dynamicrubric.data.formats import Origin, parse_row
from dynamicrubric.data.rows import RowFault
from dynamicrubric.data.sources import open_sources
from dynamicrubric.errors import UserError
from dynamicrubric.hashing import canonical_json, hash_of
from dynamicrubric.seeds import derive_seed

MOST_SHOWN: Final = 120
"""Characters of what a refusal says it got."""
Places = Iterator[tuple[str, object]]
"""Each row's place in words and its value, or its `RowFault`."""
_FIELDS: Final[dict[RowFault, str]] = {
    RowFault.NO_PROMPT: "prompt",
    RowFault.EMPTY_PROMPT: "prompt",
    RowFault.NOT_A_CONVERSATION: "turns",
    RowFault.NO_RESPONSES: "responses",
    RowFault.RESPONSE_NOT_TEXT: "responses",
    RowFault.NO_RANK: "ranking",
    RowFault.NOT_A_PERMUTATION: "ranking",
    RowFault.TIERS_DISAGREE: "tiers",
}


@dataclass(frozen=True)
class Loaded:
    """A data set as a run uses it.

    Attributes:
        name: its name in the run.
        items: in the order of the source, after the limit.
        refusals: rows that are no items.
        rows: rows read: items before the limit and refusals.
    """

    name: str
    items: tuple[BenchItem, ...]
    refusals: tuple[Refusal, ...]
    rows: int

    @property
    def reasons(self) -> Counter[str]:
        """Refusals by reason."""
        return Counter(refusal.reason for refusal in self.refusals)

    @property
    def summary(self) -> dict[str, Any]:
        """What was read, as JSON values."""
        return {
            "name": self.name,
            "rows": self.rows,
            "items": len(self.items),
            "refused": len(self.refusals),
            "reasons": dict(sorted(self.reasons.items())),
            "flagged": sum(bool(item.flags) for item in self.items),
        }

    @property
    def identity(self) -> str:
        """Hash of what is scored."""
        return hash_of([canonical_json(_document(item)) for item in self.items])


def load_dataset(name: str, path: str | None, limit: int | None = None) -> Loaded:
    """Read a data set.

    Args:
        name: a name of `catalog.CATALOG`, or any name for a file of one's own.
        path: a file or a folder of files; None takes the hub's.
        limit: at most so many items, those whose hashed ids are the smallest: the same ones
            whatever the order of the file, of all subsets.

    Raises:
        UserError: no such data set, or not one row that can be used.
    """
    published = CATALOG.get(name)
    rows = _hub_rows(name) if path is None else _file_rows(path)
    items, refusals = read_rows(name, rows, published.shape if published else "plain")
    if not items:
        first = refusals[0] if refusals else None
        raise UserError(
            doing=f"reading the data set {name}" + (f" from {path}" if path else ""),
            got=f"no usable row of {len(refusals)}"
            + (f"; {first.place}: {first.field or 'the line'}: {first.got}" if first else ""),
            expected="prompt, responses and ranking or tiers in each row",
            remedy="mend what is named, or name another file",
        )
    return Loaded(name, limited(items, limit), tuple(refusals), len(items) + len(refusals))


def limited(items: Iterable[BenchItem], limit: int | None) -> tuple[BenchItem, ...]:
    """Return at most so many items, chosen by a hash of their ids and in their order."""
    every = tuple(items)
    if limit is None or len(every) <= limit:
        return every
    by_hash = sorted(every, key=lambda item: derive_seed("limit", item.id))
    kept = {item.id for item in by_hash[:limit]}
    return tuple(item for item in every if item.id in kept)


def read_rows(
    name: str, rows: Iterable[tuple[str, object]], shape: str
) -> tuple[list[BenchItem], list[Refusal]]:
    """Turn rows into items and refusals, in order; a second row of an id is refused.

    Args:
        name: the data set's.
        rows: each row's place and value.
        shape: how rows are read that are not plain ones.
    """
    items: list[BenchItem] = []
    refusals: list[Refusal] = []
    seen: dict[str, tuple[str, str]] = {}
    for place, value in rows:
        try:
            item = _item(name, place, value, shape)
            content = hash_of(_document(replace(item, subset="")))
            if item.id in seen:
                first, earlier = seen[item.id]
                reason = "duplicate_row" if earlier == content else "duplicate_id"
                raise FieldFault("id", reason, f"{item.id!r}, which {first} has")
        except FieldFault as fault:
            refusals.append(Refusal(name, place, fault.field, fault.reason, fault.got[:MOST_SHOWN]))
        else:
            seen[item.id] = place, content
            items.append(item)
    return items, refusals


def _item(name: str, place: str, value: object, shape: str) -> BenchItem:
    if isinstance(value, RowFault):
        raise FieldFault("", str(value), f"{value.words}")
    if not isinstance(value, Mapping):
        raise FieldFault("", str(RowFault.NOT_AN_OBJECT), shown(value))
    row = dict(value) if "responses" in value else SHAPES[shape](value)
    _check_names(row)
    parsed = parse_row(row, "plain", Origin(name, ""))
    if isinstance(parsed, RowFault):
        raise _fault(parsed, row)
    own = row.get("id")
    # Rows without ids are known by their content where they are ours, else by where they stand.
    row_id = parsed.id if own is not None or "responses" in value else f"{name}-{place}"
    return BenchItem(
        dataset=name,
        id=row_id,
        subset=subset_named(row.get("subset")),
        prompt=parsed.prompt,
        responses=parsed.responses,
        tiers=parsed.tier_of,
        prompt_id=f"{name}:{name_of_prompt(parsed.prompt)}",
    )


def _check_names(row: Mapping[str, Any]) -> None:
    """Refuse an id or a subset that names nothing."""
    own = row.get("id")
    if own is not None and (not isinstance(own, str | int) or isinstance(own, bool) or own == ""):
        raise FieldFault("id", "id_not_text", shown(own))
    subset = row.get("subset")
    if subset is not None and not isinstance(subset, str):
        raise FieldFault("subset", "not_text", shown(subset))
    if subset and _has_surrogate(subset):
        raise FieldFault("subset", str(RowFault.LONE_SURROGATE), "half a character")


def _fault(fault: RowFault, row: Mapping[str, Any]) -> FieldFault:
    """Say which field a fault is about, and what stands there."""
    field = _FIELDS.get(fault, "")
    if fault is RowFault.NO_RESPONSES:
        given = row.get("responses")
        if isinstance(given, list | tuple):
            reason = "one_response" if given else "no_responses"
            return FieldFault(field, reason, shown(given))
        return FieldFault(field, "not_a_list", shown(given))
    if fault is RowFault.RESPONSE_NOT_TEXT:
        bad = [(n, one) for n, one in enumerate(row["responses"]) if not isinstance(one, str)]
        return FieldFault(f"responses[{bad[0][0]}]", str(fault), shown(bad[0][1]))
    if fault is RowFault.NOT_A_PERMUTATION:
        return _order_fault(row)
    if fault is RowFault.LONE_SURROGATE:
        return FieldFault(_surrogate_field(row), str(fault), "half a character")
    if fault in (RowFault.NO_PROMPT, RowFault.NO_RANK) and field not in row:
        return FieldFault(field, f"missing_{field}", "no such field")
    return FieldFault(field, str(fault), shown(row.get(field)))


def _order_fault(row: Mapping[str, Any]) -> FieldFault:
    """Say what is wrong with `ranking` or `tiers`: repeated, missing, or unknown places."""
    count = len(row["responses"])
    for field in ("ranking", "tiers"):
        places = row.get(field)
        if places is None:
            continue
        flat = _flat(places, nested=field == "tiers")
        if flat is None:
            return FieldFault(field, "order_not_places", shown(places))
        unknown = sorted({n for n in flat if not 0 <= n < count})
        twice = sorted(n for n, times in Counter(flat).items() if times > 1)
        missing = sorted(set(range(count)) - set(flat))
        for reason, found in (
            ("unknown_place", unknown), ("place_twice", twice), ("place_missing", missing),
        ):  # fmt: skip
            if found:
                return FieldFault(field, reason, f"place {found[0]} of {count} responses")
    return FieldFault("tiers", "order_not_places", shown(row.get("tiers")))


def _flat(places: object, *, nested: bool) -> list[int] | None:
    """Return the places of a ranking or of tiers; None if they are not whole numbers."""
    if not isinstance(places, list | tuple):
        return None
    if nested and not all(isinstance(one, list | tuple) for one in places):
        return None
    found = [n for one in places for n in (one if nested else [one])]
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in found)
    return found if whole else None


def _surrogate_field(row: Mapping[str, Any]) -> str:
    for name, value in row.items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and _has_surrogate(text):
                return name
    return ""


def _has_surrogate(text: str) -> bool:
    return any(0xD800 <= ord(char) < 0xE000 for char in text)


def _document(item: BenchItem) -> dict[str, Any]:
    """Return what makes two items the same; a lone surrogate has been refused by now."""
    return {
        "id": item.id,
        "subset": item.subset,
        "prompt": item.prompt,
        "responses": list(item.responses),
        "tiers": list(item.tiers),
        "quality": list(item.quality),
    }


def _file_rows(path: str) -> Places:
    sources = open_sources([path], "not stated")
    for source in sources:
        for place, value in source.open():
            yield place if len(sources) == 1 else f"{source.name}, {place}", value


def _hub_rows(name: str) -> Places:
    found = known(name)
    if not found.repository:
        raise UserError(
            doing=f"reading the data set {name}",
            got="no path, and the hub does not have it",
            expected=f"a file: {found.where}",
        )
    for config, split in found.parts:
        several = len(found.parts) > 1
        subset = config if len({split for _, split in found.parts}) == 1 and config else split
        for number, row in enumerate(_stream(found, config, split), start=1):
            place = f"{subset} row {number}" if several else f"row {number}"
            yield place, {"subset": subset, **row} if several else row


def _stream(found: Known, config: str, split: str) -> Iterator[dict[str, Any]]:
    from dynamicrubric.data.hub import stream_rows

    yield from stream_rows(found.repository, None, split=split, config=config or None)
