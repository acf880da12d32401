"""Joins finished runs that differ in their seeds alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dynamicrubric.benchmarks.report import FIGURES_FILE, Report, make_report
from dynamicrubric.benchmarks.runfiles import RUN_FILE, SCORES_FILE, line_of
from dynamicrubric.benchmarks.scored import ScoredItem
from dynamicrubric.benchmarks.settings import STUDY
from dynamicrubric.errors import UserError
from dynamicrubric.hashing import changed_fields


def join_runs(folders: Sequence[Path], out: Path, reference: str | None) -> Report:
    """Return the report of several runs as one, and make its folder.

    Args:
        folders: finished runs.
        out: the folder for the joined table; none of theirs.
        reference: evaluator that the others are compared with.

    Raises:
        UserError: a folder is no finished run, two have one seed, or settings differ.
    """
    if out.resolve() in {folder.resolve() for folder in folders}:
        raise UserError(
            doing="joining runs",
            got=f"--out {out}, which is one of them",
            expected="a folder of its own",
        )
    documents = [_document(folder) for folder in folders]
    for folder, document in zip(folders[1:], documents[1:], strict=True):
        changed = changed_fields(_compared(documents[0]), _compared(document))
        if changed:
            raise UserError(
                doing=f"joining {folders[0]} and {folder}",
                got="; ".join(line[:120] for line in changed)[:600],
                expected="runs that differ in their seeds alone",
            )
    _check_data(folders, documents)
    scored = [one for folder in folders for one in _scores(folder)]
    _check_seeds(folders, documents)
    names = {one.evaluator for one in scored}
    if reference is not None and reference not in names:
        raise UserError(
            doing="comparing evaluators",
            got=f"the reference {reference!r}",
            expected=f"one of {', '.join(sorted(names))}",
        )
    out.mkdir(parents=True, exist_ok=True)
    figures = json.loads((folders[0] / FIGURES_FILE).read_text(encoding="utf-8"))
    scored.sort(key=lambda one: one.seed)  # stable: the runs' order within a seed
    return make_report(scored, figures["data"], reference)


def _document(folder: Path) -> dict[str, Any]:
    for name in (RUN_FILE, SCORES_FILE, FIGURES_FILE):
        if not (folder / name).is_file():
            raise UserError(
                doing=f"joining {folder}",
                got=f"no {name}",
                expected="the folder of a finished run",
                remedy="finish it with `dynamicrubric bench evaluator`",
            )
    found: dict[str, Any] = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    return found


def _compared(document: dict[str, Any]) -> dict[str, Any]:
    return {name: own for name, own in document["settings"].items() if name != "checkpoints"}


def _check_data(folders: Sequence[Path], documents: Sequence[dict[str, Any]]) -> None:
    """Refuse runs of one file with two contents; a study's data are of each seed its own.

    Raises:
        UserError: names the data set.
    """
    first: dict[str, tuple[Path, str]] = {}
    for folder, document in zip(folders, documents, strict=True):
        for by_name in document["data"].values():
            for name, content in by_name.items():
                earlier, known = first.setdefault(name, (folder, content))
                if known != content and name != STUDY:
                    raise UserError(
                        doing=f"joining {earlier} and {folder}",
                        got=f"other rows of the data set {name} in the one than in the other",
                        expected="runs that differ in their seeds alone",
                        remedy="score it again where it has changed",
                    )


def _check_seeds(folders: Sequence[Path], documents: Sequence[dict[str, Any]]) -> None:
    seen: dict[str, Path] = {}
    for folder, document in zip(folders, documents, strict=True):
        for seed in document["data"]:
            if seed in seen:
                raise UserError(
                    doing="joining runs",
                    got=f"seed {seed} in {seen[seed]} and in {folder}",
                    expected="each seed once",
                )
            seen[seed] = folder


def _scores(folder: Path) -> list[ScoredItem]:
    lines = (folder / SCORES_FILE).read_bytes().split(b"\n")
    return [line_of(folder / SCORES_FILE, n, line) for n, line in enumerate(lines, 1) if line]
