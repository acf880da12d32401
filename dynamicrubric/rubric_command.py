"""`dynamicrubric rubric`: one prompt and its responses in the terminal, scored and explained."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from dynamicrubric.doors.documents import ScoreDocument
    from dynamicrubric.doors.opening import EvaluatorOptions

PIPE_COLUMNS: Final = 120
SHOWN_CHARS: Final = 300
_MARKS: Final = {"yes": "yes", "no": "no", "unscored": "?"}


def run_rubric(
    prompt: str, responses: Sequence[str], files: Sequence[Path], as_json: bool,
    options: EvaluatorOptions,
) -> None:  # fmt: skip
    """Score one response set and print its rubric.

    Args:
        prompt: the prompt, or - for standard input.
        responses: texts.
        files: more of them, a file each.
        as_json: print the score document.
        options: the evaluator.

    Raises:
        UserError: no prompt, no response, or a file that cannot be read.
    """
    text = _read_input() if prompt == "-" else prompt
    texts = [*responses, *map(_read, files)]
    if not text.strip() or not texts:
        raise UserError(
            doing="reading what is to be scored",
            got="an empty prompt" if not text.strip() else "no response",
            expected="a prompt and at least one response",
            remedy="name responses with --response TEXT or --file PATH, as often as there are",
        )
    from dynamicrubric.doors.documents import document_of, seed_of, set_of
    from dynamicrubric.doors.opening import open_evaluator

    with open_evaluator(options) as opened:
        responses_set = set_of(text, texts, prompt_id=opened.prompt_ids.get(text))
        seed = seed_of(options.seed, responses_set)
        [scored] = opened.evaluator.score([responses_set], [seed])
    document = document_of(responses_set, scored, opened.evaluator.name)
    if as_json:
        print(json.dumps(document.model_dump(), indent=2, allow_nan=False))
        return
    from rich.console import Console

    console = Console()
    _show(console if console.is_terminal else Console(width=PIPE_COLUMNS), texts, document)


def _read_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            doing="reading the prompt from standard input",
            got=str(error),
            expected="text in UTF-8",
        ) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            doing=f"reading the response {path}", got=str(error), expected="a text file in UTF-8"
        ) from None


def _show(console: Console, texts: Sequence[str], document: ScoreDocument) -> None:
    """Print the rubric with each response's verdicts, then the scores, best first."""
    from rich.text import Text

    if document.rubric:
        console.print(_rubric_table(document))
    elif document.invalid_rubric:
        said = f"The generator's text is no rubric: {document.invalid_rubric.reason}"
        console.print(Text(f"{said} ({document.invalid_rubric.detail})", style="red"))
    console.print(_score_table(texts, document))
    for note in document.notes:
        console.print(Text(f"Note: {note}"))
    cost = document.cost
    console.print(
        Text(
            f"{document.evaluator}: {cost.calls} calls, {cost.prompt_tokens} prompt and "
            f"{cost.completion_tokens} completion tokens, {cost.verdicts} verdicts",
            style="dim",
        )
    )


def _rubric_table(document: ScoreDocument) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title="Rubric", title_justify="left")
    table.add_column("criterion")
    table.add_column("weight", justify="right")
    for place in range(len(document.scores)):
        table.add_column(f"R{place + 1}", justify="center")
    for number, item in enumerate(document.rubric or []):
        verdicts = [row[number].value for row in document.verdicts or []]
        table.add_row(
            Text(item.criterion), str(item.weight), *(_MARKS[value] for value in verdicts)
        )
    return table


def _score_table(texts: Sequence[str], document: ScoreDocument) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title="Responses, best first", title_justify="left")
    table.add_column("")
    table.add_column("score", justify="right")
    table.add_column("response")
    ordered = sorted(range(len(texts)), key=lambda place: _order(document.scores[place]))
    for place in ordered:
        score = document.scores[place]
        shown = f"{score:.3f}" if score is not None else f"unscored: {document.reasons[place]}"
        table.add_row(f"R{place + 1}", shown, Text(_short(texts[place])))
    return table


def _order(score: float | None) -> tuple[bool, float]:
    return score is None, -(score or 0.0)


def _short(text: str) -> str:
    """Return a text's beginning, control characters made visible."""
    line = " ".join(text.split())
    cut = line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]} ..."
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in cut)
