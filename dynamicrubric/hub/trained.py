"""The policy or generator that is shared: its artefact, and the cell of the study it is of."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dynamicrubric.artefact import RECORD_NAME, Artefact, Record, load_artefact
from dynamicrubric.config import load_config
from dynamicrubric.errors import UserError
from dynamicrubric.estimate import PREPARED_DIR
from dynamicrubric.hub.contents import is_pushed
from dynamicrubric.lineage import shared_cell
from dynamicrubric.plan import RUNS_DIR, WARM_DIR, Cell, Plan, expand
from dynamicrubric.report.cellfiles import EVALUATION, CellFiles, find_cell

Role = Literal["policy", "generator"]
_MAKERS: Final[dict[str, Role]] = {
    "train_policy": "policy",
    "train_generator": "generator",
    "keep_generator": "generator",
}
"""Whose checkpoint a step makes; a warm start says it itself."""


@dataclass(frozen=True)
class Place:
    """Where a cell is in its study.

    Attributes:
        plan: the lattice.
        cell: the cell.
        files: its finished artefacts.
    """

    plan: Plan
    cell: Cell
    files: CellFiles


@dataclass(frozen=True)
class Trained:
    """A policy or a generator, every file of it compared with its record.

    Attributes:
        role: which of the two.
        name: the cell's key, or the folder's name.
        artefact: its folder and record.
        place: where it is in its study; None if it is of none that is here.
        lacking: why there is no place, "" if there is one.
        prepared: the prepared data it was trained on; None if they are not here.
    """

    role: Role
    name: str
    artefact: Artefact
    place: Place | None
    lacking: str
    prepared: Artefact | None

    @property
    def record(self) -> Record:
        """The artefact's record."""
        return self.artefact.record


def find_trained(root: Path, params: Path, role: Role, name: str) -> Trained:
    """Find a policy or a generator.

    Args:
        root: the project's folder.
        params: its settings, relative to it.
        role: which of the two.
        name: a cell, or the folder of an artefact.

    Raises:
        UserError: there is none, it is damaged, or it is something else.
    """
    key, folder = _folder(root, role, name)
    artefact = load_artefact(folder)
    _check(artefact, role)
    shown = key or (folder.name if folder.name != role else f"{folder.parent.name}/{role}")
    place, lacking = _place(root, params, role, key, artefact)
    used = artefact.record.inputs.get("prepared") or (
        _measured(place.files, "prepared") if place else None
    )
    return Trained(role, shown, artefact, place, lacking, _prepared(root, used))


def _folder(root: Path, role: Role, name: str) -> tuple[str | None, Path]:
    """Return the key of the cell that is meant, None if it is none, and the artefact's folder."""
    runs = root / RUNS_DIR
    if name and Path(name).name == name and (runs / name).is_dir():
        first = not (runs / name / role).exists() and name.endswith("-r0")
        return name, root / WARM_DIR / role if first else runs / name / role
    folder = Path(name)
    if not (folder / RECORD_NAME).is_file():
        raise _unknown(root, role, name)
    inside = folder.resolve()
    if inside.parent.parent == runs.resolve() and inside.name == role:
        return inside.parent.name, folder
    return None, folder


def _unknown(root: Path, role: Role, name: str) -> UserError:
    runs, shared = root / RUNS_DIR, shared_cell(root, name)
    if shared is not None and shared != name:
        return UserError(
            doing=f"looking for the {role} {name!r}",
            got="a round that its arm shares with others",
            expected=f"the name of the cell that was trained for all of them: {shared}",
        )
    cells = sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []
    near = difflib.get_close_matches(name, cells, n=3) or cells[:3]
    return UserError(
        doing=f"looking for the {role} {name!r}",
        got=f"no such cell in {RUNS_DIR}, and no folder with a {RECORD_NAME}",
        expected=f"a cell such as {', '.join(near)}, or an artefact's folder"
        if near
        else "a cell that was run, or an artefact's folder",
        remedy="run from the project's top folder, or `dvc pull` first",
    )


def _check(artefact: Artefact, role: Role) -> None:
    record = artefact.record
    made = record.identity.get("role") if record.step == "warm_start" else _MAKERS.get(record.step)
    if made != role:
        got = f"one made by the step {record.step}"
    elif not any(n.endswith(".safetensors") and is_pushed(n) for n in record.files):
        got = "one without weights as safetensors"
    elif _is_reward_model(artefact.path):
        got = "the reward model of an arm without a generator"
    else:
        return
    raise UserError(
        doing=f"reading the {role} {artefact.path}",
        got=got,
        expected=f"the checkpoint of a {role}",
        remedy=f"name a cell that has one, or the folder of one in {WARM_DIR}",
    )


def _is_reward_model(folder: Path) -> bool:
    """Whether a folder holds what takes the generator's place in an arm of a reward model."""
    for name in ("config.json", "adapter_config.json"):
        if (folder / name).is_file():
            found = json.loads((folder / name).read_text(encoding="utf-8"))
            kinds = [*(found.get("architectures") or []), str(found.get("task_type"))]
            if any(kind.endswith(("ForSequenceClassification", "SEQ_CLS")) for kind in kinds):
                return True
    return False


def _place(
    root: Path, params: Path, role: Role, key: str | None, artefact: Artefact
) -> tuple[Place | None, str]:
    if key is None:
        return None, "it was pushed as a folder, not as a cell of a study"
    plan = expand(load_config(root / params))
    cell = plan.starts.get(key) or plan.cells.get(key)
    if cell is None:
        return None, f"the study in {params} has no cell {key} (any more)"
    files = find_cell(root, cell)
    if files is None:
        return None, f"the cell {key} is not finished, or of other settings than {params} has now"
    if _measured(files, role) not in (None, artefact.content_hash):
        return None, f"the cell {key} was measured with another {role}"
    return Place(plan, cell, files), ""


def _measured(files: CellFiles, name: str) -> str | None:
    """Return the content hash of what a cell's evaluation measured; None if it does not say."""
    found = files.records[EVALUATION].get("inputs", {}).get(name)
    return files.content_hashes.get(name) if found is None else str(found)


def _prepared(root: Path, used: str | None) -> Artefact | None:
    """Return the prepared data in the project, unless others were used.

    Names and sizes are checked, and what is read of it later: a base may have many gigabytes.
    """
    folder = root / PREPARED_DIR
    if not (folder / RECORD_NAME).is_file():
        return None
    found = load_artefact(folder, verify=False)
    return found if used in (None, found.content_hash) else None
