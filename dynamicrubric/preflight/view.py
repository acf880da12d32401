"""A report for a console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dynamicrubric.planview import duration
from dynamicrubric.preflight.facts import GIB, Phase, Report, Work

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MARKS: Final = {"ok": "ok", "note": "note", "problem": "PROBLEM"}


def print_report(report: Report, console: Console) -> None:
    """Print what was counted, then what was checked, problems with what would have to change."""
    from rich.text import Text

    if report.model is not None:
        model = report.model
        adapter = (
            f", adapters {_count(model.num_adapter_params)}" if model.num_adapter_params else ""
        )
        context = f", context {model.context:,}" if model.context else ""
        console.print(
            Text(
                f"{report.name}: {model.architecture}, {_count(model.num_params)} parameters"
                f"{adapter}{context} (from {report.source})"
            )
        )
        console.print(_memory_table(report))
    console.print(_work_table(report))
    console.print(_checks_table(report))
    number = len(report.problems)
    verdict = "It can run here." if not number else f"It cannot run here: {_problems(number)}."
    console.print(Text(verdict))


def _problems(number: int) -> str:
    return "1 problem" if number == 1 else f"{number} problems"


def _table(title: str, *columns: str, left: int = 1) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < left else "right")
    return table


def _memory_table(report: Report) -> Table:
    table = _table(
        f"Memory of one task at most, GiB ({report.device})",
        "step", "base, verifier", "policy", "generator", "gradients, Adam", "on top", "total", "at",
    )  # fmt: skip
    table.columns[-1].justify = "left"
    for phase in report.phases:
        table.add_row(*_memory_row(phase))
    return table


def _memory_row(phase: Phase) -> list[str]:
    numbers = (phase.base, phase.policy, phase.generator, phase.training)
    top = phase.moments[phase.highest]
    return [phase.step, *map(_gib, (*numbers, top, phase.total)), phase.highest]


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}" if size else "-"


def _work_table(report: Report) -> Table:
    table = _table(
        "Work of the whole plan, at most (every text as long as it may be)",
        "step", "runs", "completions", "tokens read", "written", "verdicts", "time",
    )  # fmt: skip
    for one in report.work:
        numbers = (one.completions, one.tokens_read, one.tokens_written, one.verdicts)
        table.add_row(one.step, str(one.runs), *map(_count, numbers), _time(one))
    return table


def _time(work: Work) -> str:
    if work.seconds is None:
        return "unknown"
    return f"{duration(work.seconds)} (from {work.based_on} earlier)"


def _checks_table(report: Report) -> Table:
    from rich.text import Text

    table = _table("Checks", "about", "", "found", left=3)
    styles = {"ok": "green", "note": "yellow", "problem": "red"}
    for check in report.checks:
        found = check.found if not check.change else f"{check.found}\n-> {check.change}"
        mark = Text(_MARKS[check.level], style=styles[check.level])
        table.add_row(check.area, mark, Text(found))
    return table


def _count(number: float) -> str:
    """Return a count in few letters.

    >>> _count(950), _count(8190735360), _count(288000)
    ('950', '8.19G', '288k')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(int(number))
