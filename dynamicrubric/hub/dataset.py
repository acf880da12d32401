"""Lays out what is pushed of prepared data, in a form that this project and `datasets` read again.

`anchors.jsonl` keeps a prompt's id where a reader needs its text, so each split becomes a file of
whole rows, in the form that `dynamicrubric data prepare` reads: `hub:owner/name` is a source.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.artefact import RECORD_NAME, Artefact, load_artefact
from dynamicrubric.durable import naming
from dynamicrubric.errors import UserError
from dynamicrubric.hub.cardparts import provenance_list, settings_block
from dynamicrubric.hub.contents import CARD as PUSHED_CARD
from dynamicrubric.hub.origin import DATA_CARD, PROJECTS_LICENSE
from dynamicrubric.worlds.base import WORLD_FILE

if TYPE_CHECKING:
    from huggingface_hub import DatasetCard, DatasetCardData

STEPS: Final = ("prepare", "prepare_data")
SPLITS: Final[Mapping[str, str]] = {"train": "anchors.jsonl", "heldout": "heldout_anchors.jsonl"}
PROMPTS: Final = "prompts.jsonl"
TEMPLATE: Final = Path(__file__).parent / "templates" / "data.md"
_SIZES: Final = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"),
                 (1_000_000, "100K<n<1M"))  # fmt: skip
_COPIED: Final = (".jsonl", ".csv")
"""Kinds of files at the folder's top that go along as they are."""


def write_dataset(
    folder: Path, prepared_dir: Path, *, repository: str, license_id: str | None = None
) -> None:
    """Write everything that is pushed, and nothing else.

    Args:
        folder: an empty folder.
        prepared_dir: a prepared set.
        repository: where it goes, owner/name.
        license_id: its licence as the hub's ids are; None takes what its rows say, if they agree.

    Raises:
        UserError: it is no prepared set, or it is damaged.
    """
    prepared = _load(prepared_dir)
    counts = {
        split: _write_rows(prepared, split, folder / f"{split}.jsonl")
        for split, name in SPLITS.items()
        if name in prepared.record.files
    }
    copied = [
        name
        for name in prepared.record.files
        if "/" not in name and name not in SPLITS.values() and Path(name).suffix in _COPIED
    ]
    for name in copied:
        shutil.copyfile(prepared.path / name, folder / name)
    own = license_id or _license(prepared)
    card = _card(prepared, counts, copied, own, repository)
    card.save(folder / PUSHED_CARD)


def _load(folder: Path) -> Artefact:
    if not (folder / RECORD_NAME).is_file():
        raise UserError(
            doing=f"reading the prepared data {folder}",
            got=f"no {RECORD_NAME}",
            expected="a folder that `dynamicrubric data prepare` or a study has made",
            remedy="name one, such as data/prepared",
        )
    found = load_artefact(folder)
    if found.record.step not in STEPS:
        raise UserError(
            doing=f"reading the prepared data {folder}",
            got=f"an artefact of the step {found.record.step}",
            expected="prepared data",
            remedy="name another folder, such as data/prepared",
        )
    return found


def _write_rows(prepared: Artefact, split: str, target: Path) -> int:
    """Write a split's anchor lists with their prompts; return how many."""
    number = 0
    with naming(target), target.open("w", encoding="utf-8", newline="\n") as stream:
        for row in _joined(prepared, split):
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            number += 1
    return number


def _joined(prepared: Artefact, split: str) -> Iterator[dict[str, Any]]:
    """Yield whole rows; prompts and anchor lists are in one order, so neither has to be kept."""
    prompts = (row for row in _rows(prepared.path / PROMPTS) if row["split"] == split)
    for anchors in _rows(prepared.path / SPLITS[split]):
        prompt = next((row for row in prompts if row["id"] == anchors["prompt_id"]), None)
        if prompt is None:
            raise UserError(
                doing=f"reading the prepared data {prepared.path}",
                got=f"an anchor list of {anchors['prompt_id']}, out of the prompts' order",
                expected="anchor lists in the order of their prompts",
                remedy="make the prepared data anew",
            )
        yield _whole(prompt, anchors)


def _whole(prompt: Mapping[str, Any], anchors: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as `data/formats.py` reads it: responses best first, tied ones in one tier."""
    sizes = anchors.get("tiers") or [1] * len(anchors["responses"])
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    tiers = [list(range(s, s + size)) for s, size in zip(starts, sizes, strict=True)]
    row: dict[str, Any] = {"id": prompt["id"], "turns": prompt.get("turns") or [prompt["text"]]}
    row |= {"responses": anchors["responses"], "tiers": tiers}
    return row | {name: prompt[name] for name in ("source", "license") if name in prompt}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def _license(prepared: Artefact) -> str | None:
    """Return the one licence that every row states, if it is one that the hub has an id for."""
    if WORLD_FILE not in prepared.record.files and prepared.record.step == "prepare":
        return PROJECTS_LICENSE
    stated = {row.get("license") for row in _rows(prepared.path / PROMPTS)}
    only = str(next(iter(stated))).lower() if len(stated) == 1 else ""
    return only if only in _HUB_LICENSES else None


_HUB_LICENSES: Final = frozenset(
    {"apache-2.0", "mit", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "odc-by"}
)


def _card(
    prepared: Artefact,
    counts: Mapping[str, int],
    copied: Sequence[str],
    license_id: str | None,
    repository: str,
) -> DatasetCard:
    from huggingface_hub import DatasetCard

    record = prepared.record
    own = ""
    if DATA_CARD in record.files:
        own = (prepared.path / DATA_CARD).read_text(encoding="utf-8").partition("## Settings")[0]
    stated = f"`{license_id}`." if license_id else "See the sources: they differ, or say nothing."
    card: DatasetCard = DatasetCard.from_template(
        _metadata(counts, copied, license_id),
        template_path=str(TEMPLATE),
        own=own.strip(),
        repository=repository,
        files="\n".join(f"- `{split}.jsonl`: {n} rows" for split, n in counts.items()),
        copied="\n".join(f"- `{name}`" for name in copied),
        licence=stated,
        step=record.step,
        settings=settings_block(record.identity),
        provenance=provenance_list(record),
    )
    return card


def _metadata(
    counts: Mapping[str, int], copied: Sequence[str], license_id: str | None
) -> DatasetCardData:
    from huggingface_hub import DatasetCardData

    total = sum(counts.values())
    size = next((name for most, name in _SIZES if total < most), "1M<n<10M")
    files = [{"split": split, "path": f"{split}.jsonl"} for split in counts]
    configs: list[dict[str, Any]] = [
        {"config_name": "anchors", "default": True, "data_files": files}
    ]
    configs += [
        {"config_name": Path(name).stem, "data_files": name}
        for name in copied
        if name.endswith(".jsonl")
    ]
    return DatasetCardData(
        license=license_id,
        size_categories=[size],
        tags=["dynamicrubric", "preference", "ranking"],
        configs=configs,
    )
