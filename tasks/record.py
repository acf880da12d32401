"""Artefacts: folders that exist only once their `record.json`, written last, is valid.

A step asks for what it needs with a `StepRequest`: step name and version, identity (everything that
determines the content) and input artefacts. `run_step` returns the finished artefact of that
request, or builds it:

1. it builds in `work_root/<identity hash>/`, outside every DVC out (DVC empties a stage's outs
   before it runs the command); checkpoints there survive a kill;
2. files are synced and made read-only, the record is written and synced, and the folder is renamed
   to `finished` in the work folder;
3. hard links to `finished` are staged beside the out and renamed into place.

A step whose out was emptied is therefore found again under `finished`, and a kill at any moment
leaves either no artefact or a whole one. Provenance (seconds, commit, packages, date) is in the
record but in no hash.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from dynamicrubric.durable import sync
from dynamicrubric.errors import UserError
from tasks import disk
from tasks.artefact import RECORD_NAME, Artefact, Record, artefact_files, load_artefact
from tasks.identity import JSON, canonical_json, changed_fields, hash_of
from tasks.locks import SlotLock
from tasks.provenance import provenance
from tasks.spent import Spent

__all__ = [
    "Artefact",
    "BuildDirs",
    "Record",
    "StepRequest",
    "carry",
    "differences",
    "find_finished",
    "keep",
    "load_artefact",
    "prune_work",
    "run_step",
    "snapshots_of",
    "unneeded_work",
]

logger = logging.getLogger(__name__)

FINISHED: Final = "finished"
SNAPSHOTS: Final = "snapshots"
"""Folder in a step's work folder of weights that it kept on its way, to be measured later."""
_LIVE_LOG: Final = "metrics.jsonl"
_HASH_LETTERS: Final = 16  # of the identity hash in a work folder's name


@dataclass(frozen=True)
class StepRequest:
    """What a step is asked to make; equal requests name equal content.

    Where and how fast it is computed (paths, device, number of threads) has no place in it.
    """

    step: str
    step_version: int
    identity: Mapping[str, JSON]  # config values and seeds: everything that determines the content
    inputs: Mapping[str, Path]  # artefact folders by role, e.g. {"policy": ...}

    @cached_property
    def input_hashes(self) -> dict[str, str]:
        """Content hash of each input, verified byte by byte.

        Raises:
            UserError: an input is missing or altered.
        """
        return {name: load_artefact(path).content_hash for name, path in self.inputs.items()}

    @cached_property
    def fields(self) -> dict[str, JSON]:
        """The fields whose hash is the request's identity."""
        asked: dict[str, JSON] = {
            "step": self.step,
            "step_version": self.step_version,
            "identity": self.identity,
            "inputs": self.input_hashes,
        }
        # As it will read back from the record: a tuple is a list there.
        fields: dict[str, JSON] = json.loads(canonical_json(asked))
        return fields

    @cached_property
    def identity_hash(self) -> str:
        """SHA-256 of the canonical JSON of `fields`."""
        return hash_of(self.fields)


@dataclass(frozen=True)
class BuildDirs:
    """Where a step's function writes."""

    out: Path  # becomes the artefact; empty at the start of every attempt
    checkpoints: Path  # survives a kill; removed once the step is finished
    work: Path  # this identity's own folder: scratch files, which go once the step is finished
    metrics: Path  # work/metrics.jsonl; survives a kill, so a resumed build appends to it
    spent: Spent  # told how long the build works, if that is not the time its call takes


def differences(record: Record, request: StepRequest) -> list[str]:
    """Say which identity fields of a record differ from a request, with both values."""
    return changed_fields(record.fields, request.fields)


def find_finished(out_dir: Path, request: StepRequest, *, verify: bool = True) -> Artefact | None:
    """Return the artefact at `out_dir` if it is the one requested.

    Args:
        out_dir: where the step publishes.
        request: what is asked for.
        verify: compare each file's hash with the record; sizes are compared always.

    Returns:
        The artefact; None if there is no record, or one of another identity (the log says which
        fields differ).

    Raises:
        UserError: it is the requested artefact, but altered.
    """
    if not (out_dir / RECORD_NAME).is_file():
        return None
    record = Record.read(out_dir)
    if record.identity_hash != request.identity_hash:
        changed = "; ".join(differences(record, request))
        logger.info("%s: %s is of another identity: %s", request.step, out_dir, changed)
        return None
    return load_artefact(out_dir, verify=verify)


def run_step(
    request: StepRequest,
    out_dir: Path,
    work_root: Path,
    build: Callable[[BuildDirs], None],
    *,
    on_wait: Callable[[str], None] | None = None,
) -> Artefact:
    """Return the requested artefact at `out_dir`; call `build` only if nobody has made it yet.

    Args:
        request: what is asked for.
        out_dir: where it is published. A folder there without a valid record, or of another
            identity, is replaced.
        work_root: work folders live here; best on the file system of `out_dir`, else files are
            copied instead of linked.
        build: writes the artefact's files into `BuildDirs.out`; it may find checkpoints of a killed
            attempt in `BuildDirs.checkpoints`.
        on_wait: told who is building the same artefact while this call waits for it.

    Raises:
        UserError: an input or the published artefact is altered; a link leaves the artefact; the
            disk is full or may not be written.
    """
    doing = f"making {request.step} at {out_dir}"
    with disk.disk_errors(doing, out_dir):
        found = find_finished(out_dir, request)
    work = work_root / request.identity_hash[:_HASH_LETTERS]
    lock = SlotLock(work, num_slots=1)
    if found is not None:
        logger.info("%s: found finished at %s", request.step, out_dir)
        if disk.leftovers(out_dir):
            with lock.acquire(doing, on_wait=on_wait):  # or they are another process's, at work
                _sweep(out_dir)
        return found
    with lock.acquire(doing, on_wait=on_wait), disk.disk_errors(doing, out_dir):
        finished = work / FINISHED
        if _kept(finished, request):
            logger.info("%s: found finished in %s", request.step, work)
        else:
            _build(request, work, finished, build)
        _drop_scratch(work)
        _publish(finished, out_dir, Record.read(finished))
    return load_artefact(out_dir, verify=False)


def carry(source: Artefact, out_dir: Path, request: StepRequest) -> Artefact:
    """Publish `source`'s files under a new identity, as hard links: a role that was not updated.

    Args:
        source: a loaded artefact.
        out_dir: where the new artefact is published.
        request: its identity; name `source` among the inputs.

    Raises:
        UserError: as `run_step`.
    """
    found = find_finished(out_dir, request)
    if found is not None:
        _sweep(out_dir)
        return found
    # The source's provenance, not a new date: made again after DVC emptied the out, the record has
    # the same bytes, and nothing downstream is out of date.
    origin = {**source.record.provenance, "seconds": 0.0}
    record = Record.make(request.fields, source.record.files, origin)
    with disk.disk_errors(f"making {request.step} at {out_dir}", out_dir):
        _publish(source.path, out_dir, record)
    return load_artefact(out_dir, verify=False)


def keep(folder: Path, work_root: Path) -> bool:
    """Link an artefact into the work folder of its identity, where `run_step` looks for it.

    An artefact that DVC brought is in no work folder, and DVC empties a stage's outs before it runs
    the command: what was pulled would be made again. Bytes are compared with the record when a step
    asks for them.

    Args:
        folder: a published artefact.
        work_root: as in `run_step`.

    Returns:
        Whether it was not kept there yet.

    Raises:
        UserError: the folder holds no valid record.
        OSError: a file that it names is not there, or the disk refuses.
    """
    record = Record.read(folder)
    work = work_root / record.identity_hash[:_HASH_LETTERS]
    if (work / FINISHED).exists():
        return False
    with SlotLock(work, num_slots=1).acquire(f"keeping {folder}"):
        if not (work / FINISHED).exists():
            _publish(folder, work / FINISHED, record)
    return True


def snapshots_of(record: Record, work_root: Path) -> dict[int, Path]:
    """Return the folders of the weights that a training kept on its way, by step, rising.

    None where they are gone: the artefact was brought by DVC, or trained when none were asked for.
    """
    folder = work_root / record.identity_hash[:_HASH_LETTERS] / SNAPSHOTS
    found = {int(path.name.rpartition("-")[2]): path for path in folder.glob("step-*")}
    return dict(sorted(found.items()))


def unneeded_work(work_root: Path, keep_hashes: Collection[str]) -> list[Path]:
    """Return the work folders of all identities but `keep_hashes`."""
    keep = {identity_hash[:_HASH_LETTERS] for identity_hash in keep_hashes}
    return [path for path in sorted(work_root.glob("*")) if path.name not in keep]


def prune_work(work_root: Path, keep_hashes: Collection[str]) -> list[Path]:
    """Remove the work folders of all identities but `keep_hashes`; return what was removed.

    Published artefacts keep their bytes: they are hard links or copies.
    """
    gone = unneeded_work(work_root, keep_hashes)
    for path in gone:
        disk.remove(path)
    return gone


def _kept(finished: Path, request: StepRequest) -> bool:
    """Say whether `finished` is the requested artefact, whole; drop it if it is not.

    It shares its bytes with what was published, so an edit in place damaged both. The published one
    is refused for a person to look at; this one is only a means to save time.
    """
    try:
        found = find_finished(finished, request)
    except UserError as error:
        logger.warning("%s: building again, the kept copy is not usable: %s", request.step, error)
        found = None
    if found is None:
        disk.remove(finished)
    return found is not None


def _build(
    request: StepRequest, work: Path, finished: Path, build: Callable[[BuildDirs], None]
) -> None:
    spent = Spent(work / "seconds")
    dirs = BuildDirs(work / "out", work / "checkpoints", work, work / _LIVE_LOG, spent)
    disk.remove(dirs.out)
    dirs.out.mkdir()
    dirs.checkpoints.mkdir(exist_ok=True)
    started = time.monotonic()
    build(dirs)
    if not spent.is_noted:
        spent.note(time.monotonic() - started)
    files = artefact_files(dirs.out)
    for name in files:
        sync(dirs.out / name)
        (dirs.out / name).chmod(0o444)
    record = Record.make(request.fields, files, provenance(spent.seconds))
    _seal(dirs.out, record)
    dirs.out.rename(finished)
    sync(work)


def _drop_scratch(work: Path) -> None:
    """Remove what a finished step needs no more: checkpoints, each step's rollouts, the like."""
    kept = {FINISHED, SNAPSHOTS, _LIVE_LOG}
    for path in work.iterdir():
        if path.name not in kept and path.suffix != ".lock":
            disk.remove(path)


def _seal(folder: Path, record: Record) -> None:
    """Write the record of a folder whose files are all in place and on the disk."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync(path)
    disk.write_json_durably(folder / RECORD_NAME, record.as_json())
    (folder / RECORD_NAME).chmod(0o444)
    sync(folder)


def _sweep(out_dir: Path) -> None:
    """Remove what a kill has left beside the artefact, in the folder that `compare` reads."""
    for path in disk.leftovers(out_dir):
        logger.info("removing %s, left by a process that was killed", path)
        disk.remove(path)


def _publish(source: Path, out_dir: Path, record: Record) -> None:
    """Put links to `source`'s files at `out_dir`, in one rename."""
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    if out_dir.is_dir() and any(out_dir.iterdir()):
        logger.warning("%s: replacing what is at %s", record.step, out_dir)
    staged = disk.staging(out_dir)
    disk.remove(staged)
    staged.mkdir()
    try:
        for name in record.files:
            target = staged / name
            target.parent.mkdir(parents=True, exist_ok=True)
            disk.link_or_copy(source / name, target)
        _seal(staged, record)
        disk.replace_folder(staged, out_dir)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)  # the first error is the one to report
        raise
