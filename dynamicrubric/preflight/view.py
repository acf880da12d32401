"""A report for a console."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from dynamicrubric.preflight.facts import PARTS, Report, Work
from dynamicrubric.preflight.storage import TEXTS, shown_gb
from dynamicrubric.preflight.work import total_work

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLUMNS: Final = {name: name for name in PARTS} | {"served": "vLLM", "highest": "on top"}
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
    if report.storage:
        console.print(_disk_table(report))
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
    shown = [
        n
        for n, name in enumerate(PARTS)
        if name not in ("process", "served") or any(getattr(phase, name) for phase in report.phases)
    ]
    table = _table(
        f"Memory at most, GiB, parts rounded up ({report.device})",
        "step", *(_COLUMNS[PARTS[n]] for n in shown), "a task", "tasks", "all", "at",
    )  # fmt: skip
    table.columns[-1].justify = "left"
    for phase in report.phases:
        parts = [phase.parts[n] for n in shown]
        numbers = [*map(_gib, (*parts, phase.one)), str(phase.tasks), _gib(phase.all)]
        table.add_row(phase.step, *numbers, phase.highest)
    return table


def _gib(size: float) -> str:
    return f"{size:.2f}" if size else "-"


def _work_table(report: Report) -> Table:
    table = _table(
        "Work of the whole plan, at most (every text as long as it may be)",
        "step", "runs", "completions", "tokens read", "written", "verdicts", "verifier reads",
        "time",
    )  # fmt: skip
    for one in report.work:
        table.add_row(*_work_row(one), _time(one))
    if report.work:
        table.add_section()
        everything = total_work(report.work, "total")
        minutes = [minutes_of(one.seconds) for one in report.work if one.seconds is not None]
        known = len(minutes) == len(report.work)
        table.add_row(*_work_row(everything), _clock(sum(minutes)) if known else "unknown")
    return table


def _work_row(one: Work) -> list[str]:
    names = ("runs", "completions", "tokens_read", "tokens_written", "verdicts", "tokens_judged")
    return [one.step, *(f"{getattr(one, name):,}" for name in names)]


def _time(work: Work) -> str:
    if work.seconds is None:
        return "unknown"
    return f"{_clock(minutes_of(work.seconds))} (from {work.based_on} earlier)"


def minutes_of(seconds: float) -> int:
    """Return whole minutes, begun ones counted."""
    return ceil(seconds / 60)


def _clock(minutes: int) -> str:
    """Return hours and minutes.

    >>> _clock(1), _clock(125)
    ('0:01', '2:05')
    """
    return f"{minutes // 60}:{minutes % 60:02}"


def _disk_table(report: Report) -> Table:
    table = _table("Disk, GB; parts rounded up", "for", "GB")
    parts = {name: shown_gb(size) for name, size in report.storage.items()}
    for name, size in parts.items():
        table.add_row(f"{name}, at most" if name == TEXTS else name, f"{size:.1f}")
    table.add_section()
    table.add_row("total", f"{sum(parts.values()):.1f}")
    return table


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
