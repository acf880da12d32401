"""`dynamicrubric audit`: reads finished measurements, writes one page with the answer."""

from __future__ import annotations

from pathlib import Path

import typer

from dynamicrubric.errors import UserError


def run_audit(params: Path, out: Path, *, partial: bool) -> None:
    """Write the page, its picture and tables into `out`, and print the answer.

    Raises:
        UserError: no audit is planned, or it is not finished (all that is missing is named), or
            `out` cannot be written.
    """
    # Imported here: `--help` has to answer at once.
    from rich.console import Console
    from rich.text import Text

    from dynamicrubric.audit.findings import audit_of
    from dynamicrubric.audit.page import INDEX, write_page
    from dynamicrubric.audit.planned import planned_audits
    from dynamicrubric.audit.read import read_audits
    from dynamicrubric.audit.words import answer
    from dynamicrubric.config import load_config
    from dynamicrubric.durable import ready_folder
    from dynamicrubric.lattice import expand

    audits = list(planned_audits(expand(load_config(params))).values())
    measured = read_audits(audits, params.absolute().parent, partial=partial)
    ready_folder(out)
    left = len(audits) - len(measured.seeds)
    mark = f"PARTIAL: {left} of {len(audits)} audits are missing." if left else ""
    try:
        found = audit_of(measured)
    except ValueError as error:
        raise UserError(
            doing="auditing the bound", got=str(error),
            expected="at least two generators of a policy, all for response sets of one size",
            remedy="raise study.audit.checkpoints, or leave out arms with another "
            "responses_per_set",
        ) from None  # fmt: skip
    write_page(found, out, mark)
    console = Console()
    for text in filter(None, (mark, answer(found))):
        console.print(Text(text, style="bold red" if text == mark else ""))
    typer.echo(f"Page: {out / INDEX}")
