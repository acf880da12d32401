"""Writes the data card: what a prepared set is made of, what was left out, and why.

Every figure is of the run that made the set. The card goes out with the set when that is shared, so
it states the licences as the sources do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dynamicrubric.commit import git_commit
from dynamicrubric.data.overlaps import TABLE_HEADER, OverlapTable, markdown_table
from dynamicrubric.data.settings import DataSettings
from dynamicrubric.data.splits import Split
from dynamicrubric.data.tally import Lengths, SplitTally, Tally
from dynamicrubric.durable import naming


def write_card(
    path: Path,
    tally: Tally,
    table: OverlapTable,
    settings: DataSettings,
    settings_hash: str,
    identity: Mapping[str, Any],
) -> None:
    """Write the card of a prepared set.

    Args:
        path: where to.
        tally: every row accounted for.
        table: what was kept out for a benchmark's sake.
        settings: of the preparation.
        settings_hash: of the settings.
        identity: what was read, by name and hash.
    """
    parts = [
        _head(tally, settings_hash),
        _sources(tally, identity),
        _removed(tally),
        _contamination(table, settings),
        _splits(tally, settings),
        _lengths(tally),
        f"## Settings\n\n```json\n{settings.model_dump_json(indent=2)}\n```\n",
    ]
    with naming(path):
        path.write_text("\n".join(parts), encoding="utf-8")


def _head(tally: Tally, settings_hash: str) -> str:
    train, heldout = tally.kept["train"], tally.kept["heldout"]
    return f"""# Anchor lists, prepared

Prompts with ranked responses, to train rubric generators and policies on.

- {train.rows} training prompts, {heldout.rows} held out, of {tally.num_read} rows read
- commit {git_commit() or "not known"}, settings {settings_hash[:16]}
- `prompts.jsonl`, `anchors.jsonl`, `heldout_anchors.jsonl`: see "Splits"; who was removed as an
  overlap with a benchmark is in `overlaps.csv`
"""


def _sources(tally: Tally, identity: Mapping[str, Any]) -> str:
    read = [
        (one["name"], str(count), one.get("sha256", "not a file")[:16])
        for one, count in zip(identity["sources"], tally.read.values(), strict=True)
    ]
    both = list(tally.kept.values())
    sources = sum((one.sources for one in both), Counter[str]())
    licenses = sum((one.licenses for one in both), Counter[str]())
    return "\n".join(
        (
            "## Sources and licences\n",
            markdown_table(("read from", "rows", "sha256"), read),
            markdown_table(("source, of the rows kept", "rows"), _most(sources)),
            markdown_table(("licence, as the source states it", "rows"), _most(licenses)),
        )
    )


def _removed(tally: Tally) -> str:
    lines = [(stage, reason, str(n), str(left)) for stage, reason, n, left in tally.steps()]
    start = ("", "read", "", str(tally.num_read))
    return (
        "## What was left out\n\nA row counts for the first reason that applies.\n\n"
        + markdown_table(("stage", "reason", "rows", "left"), [start, *lines])
    )


def _contamination(table: OverlapTable, settings: DataSettings) -> str:
    if not table.benchmarks:
        return "## Contamination\n\nNot checked: no benchmark was named.\n"
    one = settings.contamination
    also = f", or a response as {one.response_ngram}-word runs do" if one.responses else ""
    return f"""## Contamination

Rows that passed the filters, against {len(table.benchmarks)} benchmark files: a row is left out if
its prompt equals a benchmark's after normalising, if {one.prompt_ngram}-word runs that it shares
cover at least {one.min_share:.0%} of the benchmark's prompt{also}. {table.total} were.

{markdown_table(TABLE_HEADER, table.lines())}"""


def _splits(tally: Tally, settings: DataSettings) -> str:
    names: tuple[Split, ...] = ("train", "heldout")
    rows = [("rows", *(str(tally.kept[name].rows) for name in names))]
    rows.append(("lists with ties", *(str(tally.kept[name].tied) for name in names)))
    rows.append(("several turns", *(str(_several(tally.kept[name])) for name in names)))
    rows.append(("responses in a list", *(_range(tally.kept[name].list_lengths) for name in names)))
    rows.append(("longer wins", *(_longer(tally.kept[name]) for name in names)))
    share = f"{settings.splits.heldout_share:.1%}"
    return f"""## Splits

By a hash of the prompt's first turn (seed {settings.splits.seed}), {share} held out: adding or
removing rows moves no other row.

{markdown_table(("", *names), rows)}
"Longer wins" is the share of decided pairs in which the longer response is the better one, of those
that differ in length: the baseline that every evaluator has to beat.
"""


def _lengths(tally: Tally) -> str:
    lines = []
    for split, held in tally.kept.items():
        texts = {"prompts": held.prompts, "responses": held.responses, "best": held.best}
        lines += [(split, name, *_length_cells(one)) for name, one in texts.items()]
    header = ("split", "texts", "number", "mean", "10 %", "50 %", "90 %", "longest")
    return (
        "## Lengths\n\nCharacters; quantiles are rounded down to two digits.\n\n"
        + markdown_table(header, lines)
    )


def _length_cells(one: Lengths) -> Sequence[str]:
    quantiles = [str(one.quantile(share)) for share in (0.1, 0.5, 0.9)]
    return (str(one.count), f"{one.mean:.0f}", *quantiles, str(one.longest))


def _most(counts: Counter[str]) -> list[tuple[str, str]]:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(name, str(count)) for name, count in ordered]


def _several(held: SplitTally) -> int:
    return held.rows - held.turns[1]


def _range(counts: Counter[int]) -> str:
    if not counts:
        return "-"
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _longer(held: SplitTally) -> str:
    rate = held.longer.rate
    return "-" if rate is None else f"{rate:.3f} of {held.longer.pairs}"
