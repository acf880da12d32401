"""The figures on a model's card, as Markdown; what is missing is said, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from dynamicrubric.data.overlaps import markdown_table
from dynamicrubric.hub.figures import Figures
from dynamicrubric.metrics import ALL_ROUND_METRICS
from dynamicrubric.report.curves import CurvePoint
from dynamicrubric.report.differences import Difference
from dynamicrubric.report.phrases import CERTAINTY, count, of_all, signed
from dynamicrubric.report.words import basis
from dynamicrubric.stats import MIN_SEEDS


def figures_text(figures: Figures) -> str:
    """Return every table that there are figures for."""
    if figures.lacking:
        return f"None: {figures.lacking}."
    if not figures.own:
        return "None: nothing could be scored."
    parts = [_own(figures), _over_seeds(figures.over_seeds), _differences(figures.differences)]
    return "\n\n".join(parts)


def _own(figures: Figures) -> str:
    lines = [
        (
            ALL_ROUND_METRICS[name].label,
            ALL_ROUND_METRICS[name].show(found.value),
            of_all(found.n_scored, found.n_total),
            ALL_ROUND_METRICS[name].meaning,
        )
        for name, found in figures.own.items()
    ]
    table = markdown_table(("metric", "value", "scored of all", "meaning"), lines)
    return f"### This round and seed\n\nOn held-out prompts.\n\n{table}"


def _over_seeds(points: Sequence[CurvePoint]) -> str:
    seeds = max(len(point.seeds) for point in points)
    head = f"### The arm over {count(seeds, 'seed')}\n\n"
    if seeds < MIN_SEEDS:
        return head + f"No interval: {count(seeds, 'seed')} of the {MIN_SEEDS} that it takes."
    lines = [_point(point) for point in points]
    table = markdown_table(("metric", "mean", f"{CERTAINTY} from", "to", "seeds"), lines)
    return f"{head}The same round with every seed that has it; intervals are over seeds.\n\n{table}"


def _point(point: CurvePoint) -> tuple[str, ...]:
    metric = ALL_ROUND_METRICS[point.metric]
    ends = (metric.show(point.low), metric.show(point.high))
    return (metric.label, metric.show(point.mean), *ends, str(len(point.seeds)))


def _differences(found: Sequence[Difference]) -> str:
    head = "### Against other arms\n\n"
    if not found:
        return head + (
            "None: the study compares arms in the last round that both reach; this is not it, or "
            f"has fewer than {MIN_SEEDS} seeds."
        )
    lines = [_difference(one) for one in found]
    columns = ("difference", "metric", "mean", f"{CERTAINTY} from", "to", "interval is")
    said = "Paired by held-out prompt; intervals are not corrected for the number of comparisons."
    return f"{head}{said}\n\n{markdown_table(columns, lines)}"


def _difference(one: Difference) -> tuple[str, ...]:
    low, high = one.estimate.interval or (None, None)
    label = ALL_ROUND_METRICS[one.metric].label
    over = basis(one) if one.estimate.interval else one.estimate.lacking
    return (f"{one.arm} - {one.other}", label, signed(one.mean), signed(low), signed(high), over)
