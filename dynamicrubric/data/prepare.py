"""Makes a prepared set: read, filter, keep benchmarks out, settle repeats, split, write, publish.

What is in the folder afterwards:

- `prompts.jsonl`: a row for each prompt of both splits (`id`, `text`, `split`, and `turns`, `row`,
  `source`, `license`);
- `anchors.jsonl`, `heldout_anchors.jsonl`: a row for each anchor list of a split (`prompt_id`,
  `responses` best first, `tiers`: sizes of the groups that tie, best first);
- `counts.json`, `overlaps.csv`, `card.md` (see `card`) and, last, `record.json`.

The first two have the names and fields that the embedded world writes, so `load_prepared` reads
them. Rows are sorted by the hash of their prompt: the same rows in another order give the same
bytes.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dynamicrubric.data.card import write_card
from dynamicrubric.data.contamination import Benchmarks, Overlap
from dynamicrubric.data.filters import filter_of
from dynamicrubric.data.formats import TextRow
from dynamicrubric.data.overlaps import OverlapTable, overlap_writer
from dynamicrubric.data.publish import publish, staged_folder
from dynamicrubric.data.rows import AnchorRow
from dynamicrubric.data.settings import DataSettings
from dynamicrubric.data.sources import Reading, Source, open_sources
from dynamicrubric.data.splits import Split, split_of
from dynamicrubric.data.store import RowStore
from dynamicrubric.data.tally import Tally
from dynamicrubric.durable import naming
from dynamicrubric.errors import UserError
from dynamicrubric.hashing import hash_of, sha256_of
from dynamicrubric.hub.names import HUB

ANCHOR_FILES: Mapping[Split, str] = {
    "train": "anchors.jsonl",
    "heldout": "heldout_anchors.jsonl",
}
OnRow = Callable[[Source], None]
"""Told of every row that is read, for a progress bar."""


@dataclass(frozen=True)
class Prepared:
    """What a preparation did.

    Attributes:
        out: the folder.
        tally: every row accounted for.
        overlaps: counts of the rows that were kept out for a benchmark's sake.
        settings_hash: of the settings.
        content_hash: of the folder's files.
    """

    out: Path
    tally: Tally
    overlaps: OverlapTable
    settings_hash: str
    content_hash: str


def prepare(
    sources: list[str],
    against: list[str],
    out: Path,
    settings: DataSettings,
    *,
    limit: int | None = None,
    on_row: OnRow = lambda _: None,
) -> Prepared:
    """Prepare anchor lists and prompts from some sources.

    Args:
        sources: files, folders, or `hub:owner/name[@revision]`.
        against: benchmark files and folders that no row may overlap.
        out: the folder to make; a prepared set that is there is replaced once the new one is whole.
        settings: filters, contamination, splits.
        limit: read at most so many rows of each source.
        on_row: told of every row.

    Raises:
        UserError: a source cannot be read or is mostly unreadable, nothing is left, or `out` is
            something else. Nothing is written then.
    """
    started = time.monotonic()
    opened = open_sources(sources, settings.license)
    benchmarks = open_sources(against, settings.license)
    table = OverlapTable([one.name for one in opened], [one.name for one in benchmarks])
    index = Benchmarks.read(benchmarks, settings.contamination, settings.max_bad_rate)
    tally = Tally()
    identity = _identity(opened, benchmarks, settings, limit)
    out = out.absolute()
    with staged_folder(out) as folder:
        with RowStore(folder / "rows.sqlite") as store:
            with overlap_writer(folder / "overlaps.csv") as write:
                reader = _Reader(settings, index, table, write, tally, limit, on_row)
                for source in opened:
                    for row in reader.rows(source):
                        store.add(row)
            _write_rows(store, folder, settings, tally)
        tally.check()
        _check_left(tally)
        settings_hash = hash_of(settings.model_dump(mode="json"))
        _write_json(folder / "counts.json", counts(tally))
        write_card(folder / "card.md", tally, table, settings, settings_hash, identity)
        record = publish(folder, out, identity, time.monotonic() - started)
    return Prepared(out, tally, table, settings_hash, record["content_hash"])


def counts(tally: Tally) -> dict[str, Any]:
    """Return the counts of a preparation as JSON holds them; files by the last part of a path."""
    read: Counter[str] = Counter()
    for name, number in tally.read.items():
        read[name if name.startswith(HUB) else Path(name).name] += number
    return {
        "read": dict(sorted(read.items())),
        "removed": {stage: dict(sorted(kinds.items())) for stage, kinds in tally.removed.items()},
        "kept": {split: held.rows for split, held in tally.kept.items()},
    }


@dataclass(frozen=True)
class _Reader:
    """Everything that decides on a row by itself."""

    settings: DataSettings
    index: Benchmarks
    table: OverlapTable
    write: Callable[[str, TextRow, Overlap], None]
    tally: Tally
    limit: int | None
    on_row: OnRow

    def rows(self, source: Source) -> Iterator[AnchorRow]:
        """Yield the rows of a source that stay, so far; count the others."""
        reading = Reading(source.name)
        for row in source.anchor_rows(self.settings.max_bad_rate, reading, self.limit):
            self.on_row(source)
            removed = filter_of(row, self.settings.filters)
            if removed is not None:
                self.tally.removed["filtered"][str(removed)] += 1
            elif not self._is_contaminated(source, row):
                yield row
        self.tally.read[source.name] += reading.rows
        self.tally.removed["unreadable"].update(reading.faults)

    def _is_contaminated(self, source: Source, row: AnchorRow) -> bool:
        texts = TextRow.of(row)
        found = self.index.overlaps(texts)
        self.table.add(source.name, found)
        for overlap in found:
            self.write(source.name, texts, overlap)
        if found:
            strongest = min(found, key=lambda one: one.rank)
            self.tally.removed["contaminated"][str(strongest.kind)] += 1
        return bool(found)


def _write_rows(store: RowStore, folder: Path, settings: DataSettings, tally: Tally) -> None:
    """Write every prompt's one row to its split, in the order of prompt hashes."""
    with ExitStack() as stack:
        prompts = stack.enter_context(_lines(folder / "prompts.jsonl"))
        anchors = {
            split: stack.enter_context(_lines(folder / name))
            for split, name in ANCHOR_FILES.items()
        }
        for resolved in store.resolved():
            tally.removed["repeated"].update(Counter(map(str, resolved.removed.elements())))
            row = resolved.kept
            if row is None:
                continue
            split = split_of(row, settings.splits)
            tally.kept[split].add(row)
            prompt_id = row.prompt_hash.hex()[:ID_LETTERS]
            _write_line(prompts, _prompt(row, prompt_id, split))
            anchor = {"prompt_id": prompt_id, "responses": row.responses, "tiers": row.tiers}
            _write_line(anchors[split], anchor)


ID_LETTERS = 20
"""Of the prompt hash in hexadecimal: 80 bits, so that ids of a million prompts never meet."""


def _prompt(row: AnchorRow, prompt_id: str, split: Split) -> dict[str, Any]:
    return {
        "id": prompt_id,
        "text": row.prompt,
        "split": split,
        "turns": row.turns,
        "row": row.id,
        "source": row.source,
        "license": row.license,
    }


def _identity(
    opened: list[Source], benchmarks: list[Source], settings: DataSettings, limit: int | None
) -> dict[str, Any]:
    """Return what the set follows from; files are known by their bytes, not by where they lie."""
    return {
        "settings": settings.model_dump(mode="json"),
        "sources": [_fingerprint(source) for source in opened],
        "against": [_fingerprint(source) for source in benchmarks],
        "limit": limit,
    }


def _fingerprint(source: Source) -> dict[str, str]:
    if source.name.startswith(HUB):
        return {"name": source.name}
    path = Path(source.name)
    return {"name": path.name, "sha256": sha256_of(path)}


def _check_left(tally: Tally) -> None:
    if not tally.kept["train"].rows:
        top = Counter({f"{reason} {stage}": n for stage, reason, n, _ in tally.steps()})
        removed = ", ".join(f"{name}: {count}" for name, count in top.most_common(5))
        raise UserError(
            doing="preparing data",
            got=f"no training row of {tally.num_read} ({removed or 'all held out'})",
            expected="one at least",
            remedy="loosen the filter that removed most, or name other sources",
        )


@contextmanager
def _lines(path: Path) -> Iterator[IO[str]]:
    with naming(path), path.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream


def _write_line(stream: IO[str], value: Mapping[str, Any]) -> None:
    stream.write(json.dumps(value, ensure_ascii=False) + "\n")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with naming(path):
        path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
