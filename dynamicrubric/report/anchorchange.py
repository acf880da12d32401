"""How each arm's evaluator ranks held-out anchors before and after: the last round minus round 0.

Paired by prompt, as arms are compared with each other; only where evaluations have anchor lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dynamicrubric.metrics import ANCHOR_METRICS
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import EVALUATION, load_cell
from dynamicrubric.report.differences import pair
from dynamicrubric.report.evidence import Grid
from dynamicrubric.report.outcomes import OutcomeTable
from dynamicrubric.report.page import Section
from dynamicrubric.report.phrases import signed
from dynamicrubric.stats import LEVEL, Paired, PromptValues, estimate, prompt_means

ACCURACY: Final = "anchor_rank_accuracy"


def anchor_change_grids(plan: Plan, root: Path, table: OutcomeTable) -> list[Grid]:
    """Return the table, or none in a world without held-out anchors.

    Raises:
        UserError: an evaluation's table is not the recorded one.
    """
    if ACCURACY not in table.metrics:
        return []
    rows = tuple(_row(plan, root, table, arm) for arm in table.arms)
    interval = f"{LEVEL:.0%} interval"
    heads = ("arm", "before", "after", "after - before", interval, "interval is")
    label = ANCHOR_METRICS[ACCURACY].meaning
    return [Grid(f"Evaluators before and after training: {label}", heads, rows)]


def anchor_sections(grids: Sequence[Grid]) -> tuple[Section, ...]:
    """Return the page's section; none without such figures."""
    lead = (
        "The rubric written for a held-out response set, applied to the ranked answers to the same "
        "prompt: how much of their order its scores have."
    )
    section = Section("anchors", "Evaluators on held-out anchors", lead, grids=tuple(grids))
    return (section,) if grids else ()


def _row(plan: Plan, root: Path, table: OutcomeTable, arm: str) -> tuple[str, ...]:
    last = table.last_round_of(arm)
    show = ANCHOR_METRICS[ACCURACY].show
    before, after = (show(table.mean(arm, number, ACCURACY)) for number in (0, last))
    changes = {
        seed: pair(seed, _values(plan, root, keys[last]), _values(plan, root, keys[0])).by_prompt
        for (name, seed), keys in plan.paths.items()
        if name == arm and last < len(keys) and not _missing(table, arm, seed, last)
    }
    found = estimate(Paired.of(changes))
    ends = found.interval
    over = f"over {found.over}" if found.over else found.lacking
    shown = "none" if ends is None else f"{signed(ends[0])} to {signed(ends[1])}"
    return (arm, before, after, signed(found.mean), shown, over)


def _missing(table: OutcomeTable, arm: str, seed: int, last: int) -> bool:
    return bool({(arm, seed, 0), (arm, seed, last)} & table.missing)


def _values(plan: Plan, root: Path, key: str) -> PromptValues:
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    import pyarrow.parquet as pq

    path = load_cell(root, plan.cell(key)).file(EVALUATION, "anchors.parquet")
    rows = pq.read_table(path, columns=["prompt_id", ACCURACY])
    names = [str(name) for name in rows.column("prompt_id").to_pylist()]
    return prompt_means(zip(names, rows.column(ACCURACY).to_pylist(), strict=True))
