"""A reward function for TRL's GRPOTrainer: one rubric for the whole group, then a score for each.

    reward = GroupRubricReward(evaluator, group_size=8)
    GRPOTrainer(model, reward_funcs=reward, args=GRPOConfig(num_generations=8, ...), ...)

An evaluator that reads the response set needs all of it: a group that a process has only a part of
is refused, never scored by halves. What is unscored is None, which TRL leaves out of the group's
mean and spread; a step of which too much is unscored stops the training instead of going on with
what is left.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import groupby
from operator import add
from typing import Any, Final

from dynamicrubric.doors.documents import seed_of, set_of
from dynamicrubric.doors.messages import completion_text, prompt_text
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.evaluators.base import Cost, Evaluator, ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.types import InvalidRubric, Rubric

LogMetric = Callable[[str, float], None]
LogExtra = Callable[[str, list[Any]], None]
PREFIX: Final = "rubric/"
"""Begins the names of the metrics that this reward logs."""


class GroupRubricReward:
    """Scores whole groups with an evaluator (a reward function for TRL).

    It is an async callable: TRL awaits it beside its other async reward functions. The evaluator
    runs on one thread of its own, all groups of a step in one call.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        group_size: int,
        seed: int = 0,
        max_unscored_rate: float = 0.5,
        end_ids: Collection[int] | None = None,
        repeated_prompts: bool = False,
        prompt_column: str | None = None,
        name: str = "rubric",
    ) -> None:
        """Score with an evaluator.

        Args:
            evaluator: such as `evaluators.build.build_evaluator` returns.
            group_size: GRPOConfig's `num_generations`.
            seed: of whatever is random in the evaluator.
            max_unscored_rate: largest share of a step's completions without a score.
            end_ids: ids that end a completion; with them one that ends otherwise was cut and earns
                0, so that a policy learns to stop. None scores what there is.
            repeated_prompts: whether one prompt may fill all neighbouring groups of a step, as in a
                data set of a few prompts; else that is a `group_size` that cuts groups in parts.
            prompt_column: column of the data set with the prompt as the evaluator reads it; None:
                TRL's own prompt, which may have a template around it.
            name: of the reward in TRL's logs.

        Raises:
            UserError: a group of fewer than two, or a rate that is none.
        """
        if group_size < 2 or not 0.0 <= max_unscored_rate <= 1.0:
            raise UserError(
                doing="making a GroupRubricReward",
                got=f"group_size={group_size}, max_unscored_rate={max_unscored_rate}",
                expected="a group of at least 2, and a rate from 0 to 1",
            )
        self.evaluator = evaluator
        self.group_size = group_size
        self.seed = seed
        self.max_unscored_rate = max_unscored_rate
        self.end_ids = None if end_ids is None else frozenset(end_ids)
        self.repeated_prompts = repeated_prompts
        self.prompt_column = prompt_column
        self.__name__ = name
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rubric-reward")

    async def __call__(
        self,
        prompts: Sequence[object],
        completions: Sequence[object],
        *,
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_metric: LogMetric | None = None,
        log_extra: LogExtra | None = None,
        **columns: Any,  # noqa: ANN401 - TRL passes every column of the data set
    ) -> list[float | None]:
        """Return a reward for each completion, None for what is unscored.

        Args:
            prompts: texts or message lists; rows of a group are together.
            completions: likewise.
            completion_ids: their tokens, for `end_ids`.
            log_metric: TRL's hook for a step's figures.
            log_extra: TRL's hook for columns of its table of completions.
            columns: not read but for `prompt_column`: neither answers nor rankings ever reach an
                evaluator.

        Raises:
            UserError: a group is cut.
            InstrumentError: a model is broken, or more is unscored than `max_unscored_rate`.
        """
        groups = self._groups(prompts, completions, columns)
        loop = asyncio.get_running_loop()
        scored = await loop.run_in_executor(self._thread, self._scored, groups)
        return self._rewards(scored, completion_ids, log_metric, log_extra)

    def score(
        self,
        prompts: Sequence[object],
        completions: Sequence[object],
        *,
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_metric: LogMetric | None = None,
        log_extra: LogExtra | None = None,
        **columns: Any,  # noqa: ANN401 - as above
    ) -> list[float | None]:
        """Return the same rewards, waiting for them: for a trainer that awaits nothing."""
        groups = self._groups(prompts, completions, columns)
        scored = self._thread.submit(self._scored, groups).result()
        return self._rewards(scored, completion_ids, log_metric, log_extra)

    def close(self) -> None:
        """End the evaluator's thread."""
        self._thread.shutdown()

    def _groups(
        self,
        prompts: Sequence[object],
        completions: Sequence[object],
        columns: Mapping[str, Any],
    ) -> list[ResponseSet]:
        if self.prompt_column is not None and self.prompt_column not in columns:
            raise UserError(
                doing=f"looking for the prompts in the column {self.prompt_column!r}",
                got=f"the columns {', '.join(sorted(columns))}",
                remedy="give the data set this column, or leave prompt_column out",
            )
        asked = prompts if self.prompt_column is None else columns[self.prompt_column]
        groups = whole_groups(asked, completions, self.group_size)
        if not self.repeated_prompts:
            _check_not_parts(groups, self.group_size)
        return groups

    def _scored(self, groups: Sequence[ResponseSet]) -> list[ScoredSet]:
        return self.evaluator.score(groups, [seed_of(self.seed, one) for one in groups])

    def _rewards(
        self,
        scored: Sequence[ScoredSet],
        completion_ids: Sequence[Sequence[int]] | None,
        log_metric: LogMetric | None,
        log_extra: LogExtra | None,
    ) -> list[float | None]:
        """Log what was found, refuse too little of it, and return the rewards."""
        if log_metric is not None:
            for metric, value in metrics_of(scored).items():
                log_metric(PREFIX + metric, value)
        if log_extra is not None:
            _log_columns(log_extra, scored)
        self._check(scored)
        return self._with_cuts([s.value for one in scored for s in one.scores], completion_ids)

    def _with_cuts(
        self, rewards: list[float | None], ids: Sequence[Sequence[int]] | None
    ) -> list[float | None]:
        if self.end_ids is None or ids is None:
            return rewards
        ended = [bool(one) and one[-1] in self.end_ids for one in ids]
        return [
            reward if reward is None or whole else 0.0
            for reward, whole in zip(rewards, ended, strict=True)
        ]

    def _check(self, scored: Sequence[ScoredSet]) -> None:
        scores = [score for one in scored for score in one.scores]
        reasons = Counter(score.reason for score in scores if score.reason is not None)
        if reasons.total() > self.max_unscored_rate * len(scores):
            kinds = ", ".join(f"{name} {count}" for name, count in reasons.most_common(5))
            raise InstrumentError(
                f"{reasons.total()} of {len(scores)} completions of this step have no score "
                f"({kinds}), above max_unscored_rate {self.max_unscored_rate}; mend what gives "
                "the rubrics or the verdicts, or raise the rate"
            )


def whole_groups(
    prompts: Sequence[object], completions: Sequence[object], size: int
) -> list[ResponseSet]:
    """Return the groups of a step's rows, refusing one that is cut.

    Args:
        prompts: of each row.
        completions: of each row.
        size: rows of a group, which stand together.

    Raises:
        UserError: the rows are no whole groups, or have a prompt that is no text.
    """
    if len(prompts) != len(completions):
        raise UserError(
            doing="scoring groups of completions",
            got=f"{len(prompts)} prompts and {len(completions)} completions",
            expected="one prompt for each completion",
        )
    groups = []
    for start in range(0, len(prompts), size):
        rows = slice(start, start + size)
        texts = [prompt_text(prompt) for prompt in prompts[rows]]
        if len(texts) != size or len(set(texts)) != 1:
            raise _cut(start, texts, size)
        if texts[0] is None or not texts[0].strip():
            raise UserError(
                doing=f"reading the prompt of row {start}",
                got="no text",
                expected="a text, or a list of chat messages with one",
            )
        groups.append(set_of(texts[0], [completion_text(one) for one in completions[rows]]))
    return groups


def _cut(start: int, texts: Sequence[str | None], size: int) -> UserError:
    kinds = Counter(texts)
    found = f"{len(texts)} rows" if len(kinds) == 1 else f"rows of {len(kinds)} prompts"
    return UserError(
        doing=f"scoring the group of {size} rows that begins with row {start}",
        got=found,
        expected=f"{size} rows of one prompt: a rubric is written for the whole group",
        remedy="give group_size the trainer's num_generations, and make the batch of each process "
        "(per_device_train_batch_size x gradient_accumulation_steps) a multiple of it",
    )


def _check_not_parts(groups: Sequence[ResponseSet], size: int) -> None:
    """Refuse groups that are halves, thirds, ... of the trainer's, which rows alone do not show.

    Then every prompt stands in two groups in a row, or three, ...: the lengths of the runs of one
    prompt have a common divisor. A prompt that the data set has twice does not do that to the
    others. A process with one group alone shows nothing.

    Raises:
        UserError: every prompt fills a multiple of the same number of groups.
    """
    runs = [sum(1 for _ in run) for _, run in groupby(groups, key=lambda one: one.prompt)]
    parts = math.gcd(*runs)
    if parts > 1:
        raise UserError(
            doing=f"scoring {len(groups)} groups of {size} rows",
            got=f"each prompt in a multiple of {parts} groups in a row",
            expected=f"whole groups; these look like parts of groups of {parts * size}",
            remedy=f"if num_generations is {parts * size}, make group_size that; if the data set "
            "has so few prompts, pass repeated_prompts=True",
        )


def metrics_of(scored: Sequence[ScoredSet]) -> dict[str, float]:
    """Return a step's figures: rates of what is unscored, and what scoring took."""
    scores = [score for one in scored for score in one.scores]
    rubrics = [one.judged.rubric for one in scored if one.judged is not None]
    valid = [rubric for rubric in rubrics if isinstance(rubric, Rubric)]
    cost = reduce(add, (one.cost for one in scored), Cost())
    found = {
        "unscored_rate": sum(not s.is_scored for s in scores) / len(scores) if scores else 0.0,
        "calls": float(cost.calls),
        "prompt_tokens": float(cost.prompt_tokens),
        "completion_tokens": float(cost.completion_tokens),
        "verdicts": float(cost.verdicts),
    }
    if rubrics:
        invalid = sum(isinstance(rubric, InvalidRubric) for rubric in rubrics)
        found["invalid_rate"] = invalid / len(rubrics)
    if valid:
        found["items"] = sum(len(rubric.items) for rubric in valid) / len(valid)
    return found


def _log_columns(log_extra: LogExtra, scored: Sequence[ScoredSet]) -> None:
    """Put rubric, verdicts and reasons beside TRL's completions."""
    rows = [(one, place) for one in scored for place in range(len(one.scores))]
    log_extra("rubric", [one.rubric_text or "" for one, _ in rows])
    log_extra("verdicts", [_verdicts(one, place) for one, place in rows])
    log_extra("unscored", [one.scores[place].reason or "" for one, place in rows])


def _verdicts(one: ScoredSet, place: int) -> str:
    if one.judged is None or not one.judged.verdicts:
        return ""
    return " ".join(verdict.value for verdict in one.judged.verdicts[place])
