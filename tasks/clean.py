"""What `work/` keeps that no published artefact needs, and its removal.

A step's work folder holds a second link to its artefact, so that a step whose out DVC has emptied
is found again, and the checkpoints of one that was stopped. `work/retired` has the folders of cells
that are not planned any more, links too. Only estimates read those: a cell that comes back is
restored by DVC, from its cache, or else step by step from the work folders. Nothing takes any of it
away by itself, and nothing here touches DVC's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from dynamicrubric.errors import UserError
from tasks import disk
from tasks.artefact import RECORD_NAME, Record
from tasks.locks import exclusive
from tasks.record import FINISHED, prune_work, unneeded_work
from tasks.study import Study

DATA_DIR = "data"
COMES_BACK = (
    "A cell that is planned again is restored from DVC's cache, .dvc/cache, or else from its "
    "finished steps in work/steps; with neither it is trained anew."
)


@dataclass(frozen=True)
class Unneeded:
    """A folder that may go.

    Attributes:
        path: the folder.
        num_bytes: what its files hold; a file that DVC's cache links to frees nothing yet.
        why: why nothing needs it.
    """

    path: Path
    num_bytes: int
    why: str


def clean(study: Study, *, unfinished: bool, remove: bool) -> list[Unneeded]:
    """Find what nothing in data/ needs, and remove it if asked to.

    Args:
        study: the study.
        unfinished: the work of steps that were stopped as well; they would start anew.
        remove: do it; else only say what would go.

    Raises:
        UserError: the study is running, so nothing may be removed; or a record is altered.
    """
    lock = study.work / "locks" / "study.lock"
    with exclusive(lock, "the removal of old work") if remove else nullcontext():
        steps, keep = study.work / "steps", _needed(study, unfinished=unfinished)
        found = [_describe(path) for path in unneeded_work(steps, keep)]
        retired = sorted((study.work / "retired").glob("*"))
        why = "not planned any more; only estimates read it"
        found += [Unneeded(path, _size(path), why) for path in retired]
        if remove:
            prune_work(steps, keep)
            for path in retired:
                disk.remove(path)
    return found


def say_clean(study: Study, *, unfinished: bool, remove: bool, say: Callable[[str], None]) -> None:
    """Run `clean` and say what went, or would go.

    Raises:
        UserError: the folder is no study's; see `clean` for others.
    """
    if not (study.root / "params.yaml").is_file():
        raise UserError(
            doing="looking for old work",
            got=f"no params.yaml in {study.root}",
            expected="the folder of a study",
            remedy="run from the project's top folder",
        )
    found = clean(study, unfinished=unfinished, remove=remove)
    for entry in found:
        place = entry.path.relative_to(study.root)
        say(f"{entry.num_bytes / 1e6:10.1f} MB  {place}  {entry.why}")
    total = f"{sum(entry.num_bytes for entry in found) / 1e6:.1f} MB in {len(found)} folders"
    say(f"Removed {total}." if remove else f"{total}; nothing is removed without --remove.")
    if found:
        say(COMES_BACK)


def _needed(study: Study, *, unfinished: bool) -> set[str]:
    """Return the hashes of what is published, of what is at work, and of what may go on."""
    records = (study.root / DATA_DIR).rglob(RECORD_NAME)
    needed = {Record.read(path.parent).identity_hash for path in records}
    for folder in (study.work / "steps").glob("*/"):
        if _in_use(folder) or not (unfinished or (folder / FINISHED).is_dir()):
            needed.add(folder.name)
    return needed


def _in_use(folder: Path) -> bool:
    return any(_is_held(path) for path in folder.glob("*.lock"))


def _is_held(path: Path) -> bool:
    try:
        with exclusive(path, "the removal of old work"):
            return False
    except UserError:
        return True


def _describe(folder: Path) -> Unneeded:
    finished = folder / FINISHED
    if not (finished / RECORD_NAME).is_file():
        return Unneeded(folder, _size(folder), "stopped half-way; the step would start anew")
    step = Record.read(finished).step
    return Unneeded(folder, _size(folder), f"a {step} that is published nowhere in {DATA_DIR}")


def _size(folder: Path) -> int:
    """Return the bytes of the files, each inode once."""
    states = (path.lstat() for path in folder.rglob("*") if not path.is_dir())
    return sum({state.st_ino: state.st_size for state in states}.values())
