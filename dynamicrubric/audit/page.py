"""Writes the audit: one page, its picture, and tables as CSV; and the section of the report."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dynamicrubric.audit.bound import points_of, slacks
from dynamicrubric.audit.falsifier import OBJECTIVES
from dynamicrubric.audit.findings import Audit
from dynamicrubric.audit.picture import draw_audit
from dynamicrubric.audit.read import FIGURES, Group
from dynamicrubric.audit.words import QUESTION, TITLE, answer, grids, notes
from dynamicrubric.durable import naming
from dynamicrubric.report.page import Section, render_section
from dynamicrubric.stats import FloatArray, prompt_intervals

INDEX: Final = "index.html"
ANSWER: Final = "answer.md"
ANCHOR: Final = "audit"


def audit_section(audit: Audit, folder: Path, mark: str = "") -> Section:
    """Return the audit as a section and draw its picture.

    Args:
        audit: the figures.
        folder: where the PNG and the SVG go.
        mark: what has to be said on the picture and of the answer.
    """
    lead = " ".join(filter(None, (mark, QUESTION, answer(audit))))
    chart = draw_audit(audit, folder, mark)
    return Section(ANCHOR, TITLE, lead, (chart,), grids(audit), notes=notes(audit))


def write_page(audit: Audit, folder: Path, mark: str = "") -> tuple[Path, ...]:
    """Write the page, the answer as text, the picture and the tables; return their paths.

    Args:
        audit: the figures.
        folder: where they go; files of the same names are replaced.
        mark: what has to be said of an audit that is not whole.
    """
    with naming(folder / INDEX):
        folder.mkdir(parents=True, exist_ok=True)
        section = audit_section(audit, folder, mark)
        (folder / INDEX).write_text(render_section(section, TITLE), encoding="utf-8")
        said = "\n\n".join(filter(None, (f"# {TITLE}", mark, QUESTION, answer(audit))))
        (folder / ANSWER).write_text(said + "\n", encoding="utf-8")
        tables = write_audit_tables(audit, folder)
    charts = [path for chart in section.charts for path in (chart.png, chart.svg)]
    return (folder / INDEX, folder / ANSWER, *charts, *tables)


def write_audit_tables(audit: Audit, folder: Path) -> tuple[Path, ...]:
    """Write the tables as CSV into a folder that is there."""
    return tuple(_write(folder / f"{name}.csv", rows) for name, rows in audit_tables(audit).items())


def audit_tables(audit: Audit) -> Mapping[str, Iterable[Mapping[str, Any]]]:
    """Return the rows of each CSV file by its name."""
    return {
        "audit_generators": _generator_rows(audit),
        "audit_bound": _bound_rows(audit),
        "audit_rounds": _round_rows(audit),
        "audit_ends": _end_rows(audit),
        "audit_pairs": _pair_rows(audit),
    }


def _generator_rows(audit: Audit) -> Iterator[dict[str, Any]]:
    beta = audit.by_policy.mean.beta
    for group in audit.measured.groups:
        figures = _figures(group)
        own = slacks(points_of([(group.means("j_anchor"), group.means("eta_res"))]), beta)
        for number, one in enumerate(group.checkpoints):
            yield {
                "round": group.round, "seed": group.seed, "policy": group.policy,
                "generator": one.name, "objective": one.objective, "lambda": one.anchor,
                "responses": one.responses, "step": one.step, "steps": one.steps,
                **{name: float(values[number]) for name, values in figures.items()},
                "slack": float(own[number]), "sets": one.sets, "sets_total": one.sets_total,
            }  # fmt: skip


def _figures(group: Group) -> dict[str, FloatArray]:
    """Return each figure with its interval over prompts, shape (C,) each."""
    found: dict[str, FloatArray] = {}
    for name in FIGURES:
        means, halves = prompt_intervals(group.values[name])
        found |= {name: means, f"{name}_low": means - halves, f"{name}_high": means + halves}
    return found


def _bound_rows(audit: Audit) -> Iterator[dict[str, Any]]:
    for found in (audit.by_policy, audit.by_round):
        betas, chance = found.intervals, found.chance
        ends = {"least largest": betas.largest, "least mean": betas.mean} if betas else {}
        by_chance = {"least largest": (chance.largest_off, chance.largest_as_much),
                     "least mean": (chance.mean_off, chance.mean_as_much)}  # fmt: skip
        for name, one in (("offsets alone", found.without), ("least largest", found.largest),
                          ("least mean", found.mean), ("c_K", found.matched),
                          ("c_K as trained", found.trained)):  # fmt: skip
            if one is None:
                continue
            yield {
                "offsets": found.offsets, "num_offsets": found.num_offsets, "beta_is": name,
                "beta": one.beta, "beta_low": ends.get(name, (None, None))[0],
                "beta_high": ends.get(name, (None, None))[1],
                "off_by_chance": by_chance.get(name, (None, None))[0],
                "as_much_by_chance": by_chance.get(name, (None, None))[1],
                "largest_slack": one.largest, "mean_slack": one.mean,
                "lambda": one.beta / audit.c_k, "c_k": audit.c_k, "slope": found.slope,
            }  # fmt: skip


def _round_rows(audit: Audit) -> Iterator[dict[str, Any]]:
    for one in audit.rounds:
        yield {
            "round": one.round, "policies": one.policies, "generators": one.generators,
            "rank_correlation": one.ranks.value, "low": one.ranks.low, "high": one.ranks.high,
            "over": one.ranks.over, "beta": one.mean.beta, "mean_slack": one.mean.mean,
            "largest_slack": one.mean.largest, "mean_slack_without": one.without.mean,
            "largest_slack_without": one.without.largest, "lambda_on_rewards": one.raw_lambda,
        }  # fmt: skip


def _end_rows(audit: Audit) -> Iterator[dict[str, Any]]:
    for one in audit.rounds:
        for ends in one.ends:
            row = {
                "round": one.round, "objective": ends.objective, "generators": ends.generators,
            }  # fmt: skip
            for name, found in ends.figures.items():
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high,
                        f"{name}_over": found.over}  # fmt: skip
            yield row


def _pair_rows(audit: Audit) -> Iterator[dict[str, Any]]:
    for name in OBJECTIVES:
        by_round = [(str(one.round), one.pairs[name]) for one in audit.rounds]
        for round_name, found in [*by_round, ("all", audit.pairs[name])]:
            yield {
                "objective": name, "round": round_name, "pairs": found.pairs,
                "against": found.against, "share": found.share.value, "low": found.share.low,
                "high": found.share.high, "over": found.share.over, "sure": found.sure,
                "sure_against": found.sure_against,
            }  # fmt: skip


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    found: Sequence[Mapping[str, Any]] = list(rows)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in found)
    return path


def _cell(value: Any) -> Any:  # noqa: ANN401 - whatever a row holds
    return None if isinstance(value, float) and np.isnan(value) else value
