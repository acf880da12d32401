"""What a checkpoint was made from: its world, its base model, and the data it was trained on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dynamicrubric.artefact import Artefact
from dynamicrubric.errors import UserError
from dynamicrubric.hub.contents import ADAPTER_CONFIG
from dynamicrubric.hub.names import HUB, HubName, parse_hub_name
from dynamicrubric.hub.trained import Trained
from dynamicrubric.report.cellfiles import checked_file
from dynamicrubric.worlds.base import BASE_FOLDER, POSTCARDS, WORLD_FILE
from dynamicrubric.worlds.language.sources import SMOLLM2

SMOLLM2_HUB: Final = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""Whose weights the package's file holds, quantised."""
DATA_CARD: Final = "card.md"
PROJECTS_LICENSE: Final = "apache-2.0"
"""Of the embedded world's texts, and so of what is trained on nothing else."""
_SECTION: Final = re.compile(
    r"^## Sources and licences\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Base:
    """The model that an adapter is over.

    Attributes:
        words: which it is, in words.
        repository: owner/name on the hub; None if it is known by its bytes alone.
        revision: its commit; None if it is not known.
        license: as its card states it; None if it does not.
        weights: SHA-256 of each file of weights that the adapter was trained over, by name.
    """

    words: str
    repository: str | None = None
    revision: str | None = None
    license: str | None = None
    weights: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """What a checkpoint was made from.

    Attributes:
        world: the world's name; None if it is not known.
        base: what it is an adapter over; None if it is a whole model.
        data: the data it was trained on, as Markdown; "" if they are not here.
        datasets: those of them that are on the hub, owner/name.
        license: what may be said of its licence without asking; None if nothing.
    """

    world: str | None
    base: Base | None
    data: str
    datasets: tuple[str, ...]
    license: str | None


def origin_of(trained: Trained, named_base: str | None) -> Origin:
    """Return what a checkpoint was made from.

    Args:
        trained: the checkpoint.
        named_base: `owner/name[@revision]` of its base, as whoever pushes it says.

    Raises:
        UserError: it is an adapter, and nobody knows what it is over; or it is none, and a base is
            named.
    """
    facts = _world_facts(trained.prepared)
    is_adapter = ADAPTER_CONFIG in trained.record.files
    if named_base is not None and not is_adapter:
        raise UserError(
            doing=f"sharing {trained.name}",
            got=f"--base {named_base}",
            expected="no base: it is a whole model, not an adapter over one",
        )
    base = _base(trained, facts, named_base) if is_adapter else None
    world = None if trained.prepared is None else str(facts.get("name", POSTCARDS))
    own = PROJECTS_LICENSE if world == POSTCARDS else None
    return Origin(
        world, base, *_data(trained.prepared), license=own if base is None else base.license
    )


def _world_facts(prepared: Artefact | None) -> Mapping[str, Any]:
    if prepared is None or WORLD_FILE not in prepared.record.files:
        return {}
    path = checked_file(prepared.path / WORLD_FILE, {"files": prepared.record.files})
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _base(trained: Trained, facts: Mapping[str, Any], named: str | None) -> Base:
    weights = {}
    if trained.prepared is not None:
        weights = {
            Path(name).name: str(about["sha256"])
            for name, about in trained.prepared.record.files.items()
            if name.startswith(f"{BASE_FOLDER}/") and name.endswith(".safetensors")
        }
    if named is not None:
        found = parse_hub_name(named)
        return _from_hub(found, found.revision, None, weights)
    checkpoint = str(facts.get("checkpoint", ""))
    license_id = facts.get("license")
    if "repository" in facts:
        return _from_hub(HubName(facts["repository"]), facts.get("revision"), license_id, weights)
    if checkpoint == SMOLLM2:
        words = f"{SMOLLM2_HUB}, as the package {SMOLLM2} has it: quantised, turned into float32"
        return Base(words, SMOLLM2_HUB, None, license_id, weights)
    if checkpoint:
        words = f"{Path(checkpoint.removeprefix(HUB)).name}, a file or folder of who trained it"
        return Base(words, None, None, license_id, weights)
    raise UserError(
        doing=f"sharing the adapter {trained.artefact.path}",
        got="no prepared data here that say what it is over",
        expected="its base model",
        remedy="run from the project that trained it, or name it with --base owner/name",
    )


def _from_hub(
    name: HubName, revision: str | None, license_id: str | None, weights: Mapping[str, str]
) -> Base:
    if name.folder:
        raise UserError(
            doing="reading --base",
            got=f"the folder {name.repository}",
            expected="owner/name of a repository, which whoever loads the adapter can get",
        )
    at = f" at {revision}" if revision else ""
    return Base(f"{name.repository}{at}", name.repository, revision, license_id, weights)


def _data(prepared: Artefact | None) -> tuple[str, tuple[str, ...]]:
    """Return what the data's own card says of where they are from, and the hub's among them."""
    if prepared is None or DATA_CARD not in prepared.record.files:
        return "", ()
    path = checked_file(prepared.path / DATA_CARD, {"files": prepared.record.files})
    text = path.read_text(encoding="utf-8")
    found = _SECTION.search(text)
    shown = found[1] if found else text.partition("\n")[2]
    world: Any = prepared.record.identity.get("world")
    sources: Any = world.get("anchors", ()) if isinstance(world, Mapping) else ()
    names = [parse_hub_name(s) for s in sources if isinstance(s, str) and s.startswith(HUB)]
    return shown.strip(), tuple(one.repository for one in names if one.folder is None)
