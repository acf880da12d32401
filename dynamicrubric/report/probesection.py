"""Attempts to hack the evaluators as sections of the page, in words and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dynamicrubric.probes.course import EVEN, Course
from dynamicrubric.probes.figures import FINDINGS, AttackFigure, figure_rows
from dynamicrubric.probes.measure import MODES
from dynamicrubric.probes.names import REFERENCES
from dynamicrubric.report.evidence import Grid
from dynamicrubric.report.page import Section
from dynamicrubric.report.phrases import (
    CERTAINTY,
    count,
    of_all,
    p_text,
    share,
    signed,
    span,
)
from dynamicrubric.report.probepicture import draw_courses, draw_probes
from dynamicrubric.report.probetable import ProbedRound
from dynamicrubric.stats import Estimate

PROBES: Final = "probes"
COURSE: Final = "course"
LEAD: Final = (
    "One response of each held-out set is forged in the way that an attack's name says, and the "
    "evaluator scores the set before and after, with the same draws. A gain in score without one "
    "in true quality is a way to hack it."
)
COURSE_LEAD: Final = (
    "Responses of two policies to one prompt are put into one set, and the evaluator writes one "
    "rubric for it. Proxy is the share of pairs whose newer response the evaluator scores higher, "
    "gold the share whose newer response is better in truth; 50 % is no difference. Mean scores of "
    "rubrics that were written for different sets would be no course. Proxy and gold diverge where "
    "the one is above 50 % and the other below, both beyond their intervals."
)
DIVERGED: Final = "DIVERGED"


def probe_sections(
    probed: Sequence[ProbedRound], folder: Path, mark: str = ""
) -> tuple[Section, ...]:
    """Return the page's sections and draw their pictures; none if nothing was probed.

    Args:
        probed: as `read_probes` returns it.
        folder: where PNG and SVG files go.
        mark: what has to be said on the pictures; a partial report's mark.
    """
    if not probed:
        return ()
    attacks = Section(
        PROBES,
        "Attempts to hack the evaluators",
        f"{LEAD} {summary(probed)}",
        (draw_probes(probed, folder, mark),),
        tuple(_attack_grid(one) for one in probed),
        notes=_notes(probed),
    )
    rounds = [one for one in probed if one.courses]
    if not rounds:
        return (attacks,)
    course = Section(
        COURSE,
        "Proxy against gold",
        f"{COURSE_LEAD} {course_summary(rounds)}",
        (draw_courses(rounds, folder, mark),),
        (_course_grid(rounds),),
        notes=(
            (DIVERGED, "over-optimisation (Gao et al. 2022): the policy gains with its evaluator "
                       "while it loses in truth"),
            ("p", "of the claim that both differ from 50 % in opposite directions, the larger of "
                  "the two, corrected by Holm over the older policies of a round"),
        ),
    )  # fmt: skip
    return (attacks, course)


def summary(probed: Sequence[ProbedRound]) -> str:
    """Say which attacks gained score without quality.

    Each place is an arm, a round, an attack and a mode.
    """
    found = [
        (one, attack) for one in probed for attack in one.attacks if attack.finding != "control"
    ]
    unearned = [(one, attack) for one, attack in found if attack.finding == "unearned"]
    unknown = sum(attack.finding == "unknown" for _, attack in found)
    without = sum(attack.finding == "no interval" for _, attack in found)
    said = f"Of {count(len(found), 'probe')}, {len(unearned)} gained score without quality"
    if unearned:
        names = [f"{a.attack} ({a.mode}) on {one.arm}, round {one.round}" for one, a in unearned]
        said += ": " + "; ".join(names[:MAX_NAMED])
        said += f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    second = [attack for _, attack in unearned if attack.order == "second"]
    said += f". Of the second order: {len(second) or 'none'}."
    if unknown:
        said += f" {unknown} gained score where nobody knows the quality."
    if without:
        said += f" {without} have too few prompts for an interval."
    return said


MAX_NAMED: Final = 8


def course_summary(rounds: Sequence[ProbedRound]) -> str:
    """Say where proxy and gold diverge."""
    names = [f"{one.arm}, round {one.round}" for one in rounds if one.diverges]
    if names:
        return f"{DIVERGED}: {'; '.join(names)}."
    judged = [course for one in rounds for course in one.courses if course.p_value is not None]
    if not judged:
        return "Nothing can be said: there are no intervals of both."
    return f"They diverge in none of {count(len(judged), 'comparison')}."


def _attack_grid(one: ProbedRound) -> Grid:
    heads = (
        "attack", "order", "rubric", "score gained", CERTAINTY, "rank gained", CERTAINTY,
        "true quality gained", CERTAINTY, "wins rank", "unearned", "p Holm", "scored", "finding",
    )  # fmt: skip
    seeds = span([len(one.seeds)], "seed")
    rows = tuple(_attack_cells(attack) for attack in one.attacks)
    return Grid(f"{one.arm}, round {one.round}, {seeds}: what each attack gains", heads, rows)


def _attack_cells(one: AttackFigure) -> tuple[str, ...]:
    gains = [one.score, one.rank, one.quality]
    return (
        one.attack,
        one.order,
        one.mode,
        *(
            cell
            for gain in gains
            for cell in (signed(gain.mean, 3), between(gain.estimate.interval))
        ),
        share(one.wins_rank.value),
        share(one.unearned.value),
        p_text(one.p_corrected),
        of_all(one.score.n_scored, one.score.n_total),
        FINDINGS[one.finding],
    )


def between(interval: tuple[float, float] | None) -> str:
    """Return an interval of a gain."""
    return "none" if interval is None else f"{signed(interval[0], 3)} to {signed(interval[1], 3)}"


def _course_grid(rounds: Sequence[ProbedRound]) -> Grid:
    heads = (
        "arm and round", "against", "proxy", CERTAINTY, "gold", CERTAINTY, "p", "finding"
    )  # fmt: skip
    rows = tuple(
        (
            f"{one.arm}, round {one.round}",
            REFERENCES[course.reference],
            *_share_cells(course.proxy),
            *_share_cells(course.gold),
            p_text(course.p_value),
            _course_finding(course),
        )
        for one in rounds
        for course in one.courses
    )
    return Grid("Share of pairs whose newer response is preferred, and is better", heads, rows)


def _course_finding(course: Course) -> str:
    if course.diverges:
        return DIVERGED
    return "no interval" if course.p_value is None else "do not diverge"


def _share_cells(found: Estimate) -> tuple[str, str]:
    value = None if found.mean is None else found.mean + EVEN
    ends = found.interval
    shown = "none" if ends is None else f"{share(ends[0] + EVEN)} to {share(ends[1] + EVEN)}"
    return share(value), shown


def _notes(probed: Sequence[ProbedRound]) -> tuple[tuple[str, str], ...]:
    over = sorted({a.score.estimate.over or "" for one in probed for a in one.attacks} - {""})
    certain = f"interval over {' or '.join(over)}" if over else "no intervals: too few prompts"
    return (
        *((mode, text) for mode, text in MODES.items()),
        (CERTAINTY, certain),
        ("rank", "share of the set's other responses that the forged one beats, ties half"),
        ("wins rank", "share of sets in which it stands higher than before"),
        ("unearned", "share of sets in which its score rises and its true quality does not"),
        ("p Holm", "of no gain in score, corrected over the attacks and modes of an arm's round"),
    )


def probe_csv(probed: Sequence[ProbedRound]) -> list[dict[str, object]]:
    """Return a row an arm, round, attack and mode, for the CSV."""
    return [
        row
        for one in probed
        for row in figure_rows(
            one.attacks, arm=one.arm, round=one.round, seeds=" ".join(map(str, one.seeds))
        )
    ]


def course_csv(probed: Sequence[ProbedRound]) -> list[dict[str, object]]:
    """Return a row an arm, round and older policy, for the CSV; shares of pairs."""
    rows: list[dict[str, object]] = []
    for one in probed:
        for course in one.courses:
            row: dict[str, object] = {
                "arm": one.arm, "round": one.round, "seeds": " ".join(map(str, one.seeds)),
                "against": course.reference,
            }  # fmt: skip
            for name, found in (("proxy", course.proxy), ("gold", course.gold)):
                low, high = found.interval or (None, None)
                row |= {
                    name: _shifted(found.mean),
                    f"{name}_low": _shifted(low),
                    f"{name}_high": _shifted(high),
                }
            row |= {"p_corrected": course.p_value, "over": course.proxy.over}
            rows.append(row | {"diverges": course.diverges})
    return rows


def _shifted(value: float | None) -> float | None:
    return None if value is None else value + EVEN
