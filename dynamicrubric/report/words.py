"""Comparisons in words: what was asked, what came out, how sure, and of what.

An interval that holds zero shows no difference; it does not show that there is none. With fewer
than three seeds an interval is over prompts alone: it says nothing about other seeds, so there is
no verdict, and the question stays open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dynamicrubric.report.differences import Difference
from dynamicrubric.report.evidence import no_interval
from dynamicrubric.report.phrases import CERTAINTY, count, label, p_text, share, signed, span
from dynamicrubric.stats import LEVEL, MIN_SEEDS

Verdict = Literal["higher", "lower", "not shown", "open", "not measured"]
Tone = Literal["good", "bad", ""]
QUALITY: Final = "true_quality"
"""The only metric in which higher is better whatever the arms are."""


@dataclass(frozen=True)
class Answer:
    """The answer to one comparison in one metric.

    Attributes:
        difference: the comparison.
        verdict: what it shows, by the corrected p-value over seeds and prompts.
        text: one or two sentences.
    """

    difference: Difference
    verdict: Verdict
    text: str

    @property
    def label(self) -> str:
        """What a person reads: the verdict, an open one with its seeds."""
        seeds = len(self.difference.by_seed)
        return f"open: {count(seeds, 'seed')}" if self.verdict == "open" else self.verdict

    @property
    def tone(self) -> Tone:
        """The colour of the verdict: none but in true quality, where higher is better."""
        if self.difference.metric != QUALITY:
            return ""
        return "good" if self.verdict == "higher" else "bad" if self.verdict == "lower" else ""


def answers(differences: Sequence[Difference]) -> tuple[Answer, ...]:
    """Put each comparison into words."""
    return tuple(Answer(found, verdict_of(found), _text(found)) for found in differences)


def verdict_of(found: Difference) -> Verdict:
    """Return what a comparison shows; only an interval over seeds and prompts shows anything."""
    if found.mean is None or found.p_corrected is None:
        return "not measured"
    if found.estimate.over != "seeds and prompts":
        return "open"
    if found.p_corrected >= 1.0 - LEVEL:
        return "not shown"
    return "higher" if found.mean > 0 else "lower"


def basis(found: Difference) -> str:
    """Say what a comparison's interval is over, and of how many.

    `over prompts only: 48 prompts of 1 seed`, `over 3 seeds and 48 prompts`.
    """
    prompts = span([one.n_prompts for one in found.by_seed], "prompt")
    seeds = count(len(found.by_seed), "seed")
    if found.estimate.over == "seeds and prompts":
        return f"over {seeds} and {prompts}"
    return f"over prompts only: {prompts} of {seeds}"


def caution(found: Difference) -> str:
    """Say what fewer than three seeds leave open; empty with three."""
    seeds = len(found.by_seed)
    if seeds >= MIN_SEEDS or found.estimate.interval is None:
        return ""
    said = count(seeds, "seed")
    return f"With {said} this says nothing about other seeds: that takes {MIN_SEEDS}."


def _text(found: Difference) -> str:
    verdict, where = verdict_of(found), f"in {label(found.metric)} in round {found.round}"
    if found.mean is None or verdict == "not measured":
        return no_interval(found)
    minus, mean = f"{found.arm} minus {found.other}", signed(found.mean, 3)
    if verdict == "open":
        return f"The difference {where}, {minus}, is {mean} ({_interval(found)})."
    if verdict == "not shown":
        alone = found.estimate.p_value
        kind = " after correction" if alone is not None and alone < 1.0 - LEVEL else ""
        lead = f"No difference shown{kind} {where}: {minus} is {mean}"
    else:
        lead = f"{found.arm} is {verdict} than {found.other} by {abs(found.mean):.3f} {where}"
    return f"{lead} ({_interval(found)}; {_corrected(found)}).{_higher_on(found)}"


def _interval(found: Difference) -> str:
    low, high = found.estimate.interval or (None, None)
    return f"{CERTAINTY} interval {signed(low, 3)} to {signed(high, 3)} {basis(found)}"


def _corrected(found: Difference) -> str:
    p, size = p_text(found.p_corrected), found.family.size if found.family else 1
    said = f"p {p.replace('<', '< ') if p.startswith('<') else '= ' + p}"
    return f"{said} corrected for {count(size, 'comparison')}"


def _higher_on(found: Difference) -> str:
    part = found.estimate.superiority
    return "" if part is None else f" {found.arm} is higher on {share(part)} of prompts."
