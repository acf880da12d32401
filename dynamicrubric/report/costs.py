"""What a cell's training took: optimiser steps, tokens written, verdicts, seconds.

Counted from what the cell's artefacts hold, measurement on held-out prompts left out. Where an
artefact does not say, the count is None and shown as a dash: nothing is estimated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import EVALUATION, REMEDY, CellFiles
from dynamicrubric.report.paid import Paid, divided, paid_of, total_paid

if TYPE_CHECKING:
    import pandas as pd

ROLLOUTS: Final = "rollouts.parquet"
TOKENIZER: Final = "tokenizer.json"
KEPT_RUBRICS: Final = "rubrics.jsonl"
SAMPLED: Final = "responses"


@dataclass(frozen=True)
class Cost:
    """What training took, of one cell or a path of cells.

    Attributes:
        steps: optimiser steps of generator and policy.
        tokens: tokens that the two wrote: responses, rubrics in training, rubrics that score.
        verdicts: verdicts that the verifier was asked for.
        seconds: wall seconds of sampling and training, all attempts.
        measuring: wall seconds of the evaluation on held-out prompts.
        paid: what calls to endpoints came to, measurement included; None without any.
    """

    steps: float | None
    tokens: float | None
    verdicts: float | None
    seconds: float | None
    measuring: float | None
    paid: Paid | None = field(default=None, kw_only=True)


COSTS: Final = tuple(one.name for one in fields(Cost) if one.name != "paid")


def cost_of(plan: Plan, files: CellFiles) -> Cost:
    """Return what one cell's training took.

    Raises:
        UserError: the rollouts are not those of the recipe's steps.
    """
    parts = [_generator(plan, files), _policy(files), _sampling(files)]
    seconds = {
        name: float(record["provenance"]["seconds"]) for name, record in files.records.items()
    }
    return Cost(
        steps=float(sum(steps for steps, _, _ in parts)),
        tokens=_total([tokens for _, tokens, _ in parts]),
        verdicts=_total([verdicts for _, _, verdicts in parts]),
        seconds=sum(value for name, value in seconds.items() if name != EVALUATION),
        measuring=seconds[EVALUATION],
        paid=paid_of(files),
    )


def summed(costs: Sequence[Cost]) -> Cost:
    """Return the cost of a path: an unknown part makes the sum unknown."""
    return Cost(
        *(_total([getattr(cost, name) for cost in costs]) for name in COSTS),
        paid=total_paid([cost.paid for cost in costs]),
    )


def mean_cost(costs: Sequence[Cost]) -> Cost:
    """Return the mean over seeds."""
    total = summed(costs)
    values = [getattr(total, name) for name in COSTS]
    return Cost(
        *(None if value is None else value / len(costs) for value in values),
        paid=divided(total.paid, len(costs)),
    )


Part = tuple[int, float | None, float | None]
"""Steps, tokens and verdicts of one of a cell's steps; None where it is not recorded."""


def _generator(plan: Plan, files: CellFiles) -> Part:
    training, recipe = files.cell.recipe.generator_training, files.cell.recipe
    first = recipe.round == 1
    kept = _kept_tokens(files) if first and recipe.rubrics.evaluator in KEEPS_RUBRICS else 0.0
    if recipe.reward_training is not None:  # it reads pairs, and writes and asks nothing
        return recipe.reward_training.steps, 0.0, 0.0
    if training is None:
        return 0, kept, 0.0
    expected = training.steps * training.prompts_per_step * training.group_size
    rows = _rollouts(files, "generator", expected)
    if rows is None:
        return training.steps, None, None
    anchors = int(plan.shared["prepare"]["world"]["num_anchors"])
    judged = anchors if training.responses == "anchors" else recipe.responses_per_set
    verdicts = float(rows["num_items"].sum()) * (judged + anchors)
    return training.steps, _total([float(rows["num_tokens"].sum()), kept]), verdicts


def _policy(files: CellFiles) -> Part:
    training, recipe = files.cell.recipe.policy_training, files.cell.recipe
    if training is None:
        return 0, 0.0, 0.0
    per_step = training.prompts_per_step * recipe.responses_per_set
    rows = _rollouts(files, "policy", training.steps * per_step)
    if rows is None:
        return training.steps, None, None
    lengths = [step.metrics.get("length") for step in files.training_steps()
               if step.role == "policy"]  # fmt: skip
    responses = _total([None if one is None else one * per_step for one in lengths])
    rubrics = _rubric_tokens(files, rows) if recipe.rubrics.evaluator == "dynamic" else 0.0
    verdicts = float(rows["verdicts"].map(len).sum()) if "verdicts" in rows else None
    tokens = _total([None if responses is None else float(round(responses)), rubrics])
    return training.steps, tokens, verdicts


def _sampling(files: CellFiles) -> Part:
    if SAMPLED not in files.records:
        return 0, 0.0, 0.0
    table = _read(files.file(SAMPLED, "responses.parquet"))
    return 0, float(table["num_tokens"].sum()), 0.0


def _rubric_tokens(files: CellFiles, rows: pd.DataFrame) -> float | None:
    """Count the tokens of the rubrics that scored: one a step and prompt."""
    if "rubric" not in rows:
        return None
    texts = rows.drop_duplicates(["step", "prompt_id"])["rubric"].tolist()
    return _written(files, texts)


def _kept_tokens(files: CellFiles) -> float | None:
    """Count the tokens of the rubrics that a static generator wrote once a prompt."""
    if KEPT_RUBRICS not in files.records.get("generator", {"files": {}})["files"]:
        return None
    text = files.file("generator", KEPT_RUBRICS).read_text(encoding="utf-8")
    return _written(files, [str(json.loads(line)["text"]) for line in text.split("\n") if line])


def _written(files: CellFiles, texts: Sequence[str]) -> float | None:
    """Count tokens of completions by encoding them again: the end token on top, cut at the limit.

    For rollouts of the embedded world this gives the recorded counts exactly.
    """
    if TOKENIZER not in files.records["generator"]["files"]:
        return None
    encode = _encoder(files.file("generator", TOKENIZER))
    limit = files.cell.recipe.rubrics.sampling.max_tokens
    lengths = {text: min(encode(text) + 1, limit) for text in set(texts)}
    return float(sum(lengths[text] for text in texts))


def _encoder(path: Path) -> Callable[[str], int]:
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _rollouts(files: CellFiles, role: str, expected: int) -> pd.DataFrame | None:
    """Read a training's rollouts; None if the artefact has none."""
    if ROLLOUTS not in files.records.get(role, {"files": {}})["files"]:
        return None
    path = files.file(role, ROLLOUTS)
    rows = _read(path)
    if len(rows) != expected:
        raise UserError(
            doing=f"counting the cost of the cell {files.cell.key}",
            got=f"{len(rows)} rollouts in {path}",
            expected=f"{expected}: steps x prompts x group, as in its recipe",
            remedy=REMEDY,
        )
    return rows


def _read(path: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    frame: pd.DataFrame = pq.read_table(path).to_pandas()
    return frame


def _total(values: Sequence[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
