"""`dynamicrubric explain`: opens a training, explains or lists its rows, prints text or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console, RenderableType

from dynamicrubric.errors import UserError
from dynamicrubric.explain import explain_response, explain_rubric
from dynamicrubric.explain_text import show_response, show_rows, show_rubric
from dynamicrubric.lineage import Training

PIPE_COLUMNS: Final = 140
"""Width where there is no terminal to ask: an id fits beside its figures."""


def explain_row(root: Path, key: str, role: str, name: str, *, as_json: bool) -> None:
    """Print the explanation of one row.

    Raises:
        UserError: there is no such row, the files are damaged, or the lineage does not add up.
    """
    training = Training.open(root, key, role)
    if role == "policy":
        response = explain_response(training, name)
        _print(asdict(response), show_response(response), as_json=as_json)
    else:
        rubric = explain_rubric(training, name)
        _print(asdict(rubric), show_rubric(rubric), as_json=as_json)


def list_rows(
    root: Path, key: str, role: str, *, step: int | None, limit: int, as_json: bool
) -> None:
    """Print a training's rows, the first `limit` of them, all if that is 0.

    Raises:
        UserError: there is no such cell or step, or the files are damaged.
    """
    training = Training.open(root, key, role)
    rows = [row for row in training.rows if step is None or row["step"] == step]
    if not rows:
        raise UserError(
            doing=f"listing step {step} of {key}",
            got=f"no such step of the {role}'s training",
            expected=f"a step from 1 to {training.rows[-1]['step']}",
        )
    shown = rows[: limit or None]
    _print(shown, show_rows(training, shown, len(rows)), as_json=as_json)


def _print(
    document: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    text: RenderableType,
    *,
    as_json: bool,
) -> None:
    if as_json:
        # ASCII alone: a control character in a model's text stays an escape in the terminal.
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_COLUMNS)
    console.print(text)
