"""Compare the arms of a finished study: results/, the table on the console, the tracker.

Command: `python -m flows compare`, from the project's folder. It trains nothing and loads no model.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from rich.console import Console

from dynamicrubric.config import load_config
from dynamicrubric.plan import load_plan
from dynamicrubric.report import Comparison, console, write_comparison
from tasks.shipping import log_comparison, reconcile, ship_study


@flow(name="compare", persist_result=False)
def compare(root: Path = Path(), results: Path = Path("results")) -> Comparison:
    """Write and show the comparison, and ship what the tracker has not got.

    Args:
        root: the project's folder.
        results: where metrics.csv, table.md and study.png go, relative to `root`.

    Raises:
        UserError: cells of the plan are missing (all are named) or their figures are impossible.
    """
    config = load_config(root / "params.yaml")
    plan = load_plan(config, root / "cells.yaml")
    questions = {name: arm.question for name, arm in config.study.arms.items()}
    found = write_comparison(plan, questions, root, root / results)
    Console().print(console(found.outcomes, found.differences, found.questions, found.coevolution))
    reconcile(root)
    ship_study(plan, root, config)
    log_comparison(plan, found, root, config)
    return found
