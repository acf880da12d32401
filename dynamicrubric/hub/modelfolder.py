"""Lays out what is pushed of a policy or a generator: its weights, its tokenizer, its card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from dynamicrubric.artefact import Artefact
from dynamicrubric.errors import UserError
from dynamicrubric.hub.contents import ADAPTER_CONFIG, CARD, is_pushed
from dynamicrubric.hub.figures import figures_of
from dynamicrubric.hub.modelcard import ModelFacts, model_card
from dynamicrubric.hub.origin import Base, origin_of
from dynamicrubric.hub.trained import Role, find_trained

_JSON = ".json"


def write_model(
    folder: Path,
    root: Path,
    params: Path,
    role: Role,
    name: str,
    *,
    repository: str,
    license_id: str | None = None,
    base: str | None = None,
) -> None:
    """Write everything that is pushed, and nothing else.

    Args:
        folder: an empty folder.
        root: the project's folder.
        params: its settings, relative to it.
        role: policy or generator.
        name: a cell, or an artefact's folder.
        repository: where it goes, owner/name.
        license_id: its licence as the hub's ids are; None takes what the run says.
        base: owner/name[@revision] of the base, where the run does not say.

    Raises:
        UserError: there is no such artefact, or it is damaged, or of another role.
    """
    trained = find_trained(root, params, role, name)
    origin = origin_of(trained, base)
    figures = figures_of(root, trained)
    facts = ModelFacts(trained, origin, figures, repository, license_id or origin.license)
    _copy(trained.artefact, folder)
    if origin.base is not None:
        _name_base(folder / ADAPTER_CONFIG, origin.base)
    model_card(facts).save(folder / CARD)


def _copy(artefact: Artefact, folder: Path) -> None:
    for name in artefact.record.files:
        if is_pushed(name):
            shutil.copyfile(artefact.path / name, folder / name)
            if name.endswith(_JSON):
                _check_json(folder / name)


def _check_json(path: Path) -> None:
    """Refuse a config that would run code of its own at whoever loads it."""
    if "auto_map" in json.loads(path.read_text(encoding="utf-8")):
        raise UserError(
            doing=f"sharing {path.name}",
            got="classes of its own (`auto_map`), which would run code at whoever loads it",
            expected="an architecture that transformers knows",
        )


def _name_base(path: Path, base: Base) -> None:
    """Write the base's name on the hub where training had the address of its folder."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = base.repository
    config["revision"] = base.revision
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")
