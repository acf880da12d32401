"""The audit of the bound as a part of the report, where a plan has one.

The report is whole without it: an audit that is planned and not finished is said to be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dynamicrubric.audit.planned import planned_audits
from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan
from dynamicrubric.report.page import Section

if TYPE_CHECKING:
    from dynamicrubric.audit.findings import Audit

TITLE = "Audit of the anchor calibration (Eq. 45)"


@dataclass(frozen=True)
class AuditState:
    """What there is of a plan's audit.

    Attributes:
        audit: its figures; None if none is planned, or it cannot be read.
        reason: why a planned one cannot be read; empty otherwise.
    """

    audit: Audit | None = None
    reason: str = ""


def read_audit_state(plan: Plan, root: Path) -> AuditState:
    """Return a plan's audit, or why there is none."""
    planned = list(planned_audits(plan).values())
    if not planned:
        return AuditState()
    # Imported here: they build on this package.
    from dynamicrubric.audit.findings import audit_of
    from dynamicrubric.audit.read import read_audits

    try:
        return AuditState(audit_of(read_audits(planned, root)))
    except (UserError, ValueError) as error:
        return AuditState(reason=str(error))


def audit_sections(state: AuditState, plots: Path, tables: Path, mark: str) -> tuple[Section, ...]:
    """Return the page's section, draw its picture and write its tables; none without an audit.

    Args:
        state: what there is.
        plots: where the picture goes.
        tables: where the CSV files go.
        mark: what has to be said on the picture; a partial report's mark.
    """
    if state.audit is None:
        missing = f"This plan has an audit that is not in the report: {state.reason}"
        return (Section("audit", TITLE, missing),) if state.reason else ()
    from dynamicrubric.audit.page import audit_section, write_audit_tables

    write_audit_tables(state.audit, tables)
    return (audit_section(state.audit, plots, mark),)
