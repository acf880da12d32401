"""Evaluators that score by a rubric: dynamic, static, and one that a person wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

from dynamicrubric.engines.base import Generation
from dynamicrubric.evaluators.base import Cost, ScoredSet
from dynamicrubric.evaluators.judging import JudgedSet, Judging, ResponseSet, failure_of
from dynamicrubric.evaluators.metering import Meter, MeteredVerifier
from dynamicrubric.evaluators.writers import RubricWriter
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import InvalidRubric, Rubric, Verdict


@dataclass
class PromptWriter:
    """Rubrics from the prompt alone, written when a prompt is first met and kept (a writer).

    Draws have the names that a static arm's have: with the seed of its run and the world's prompt
    ids the same rubrics are written.

    Attributes:
        writer: what writes.
        seed: of all its draws.
        kept: rubrics by prompt id and text, those that an arm kept at first.
        fresh: places of the sets for which the last call wrote a rubric, in order.
    """

    writer: RubricWriter
    seed: int
    kept: dict[tuple[str, str], Generation] = field(default_factory=dict)
    fresh: list[int] = field(default_factory=list)

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        """Return each prompt's rubric; the sets and their seeds change nothing."""
        new: dict[tuple[str, str], int] = {}
        for place, one in enumerate(sets):
            key = (one.prompt_id, one.prompt)
            if key not in self.kept:
                new.setdefault(key, place)
        asked = [ResponseSet(prompt_id, prompt, ()) for prompt_id, prompt in new]
        draws = [derive_seed(self.seed, "kept_rubric", prompt_id) for prompt_id, _ in new]
        texts = self.writer.write(asked, draws) if asked else []
        self.kept |= dict(zip(new, texts, strict=True))
        self.fresh = list(new.values())
        found = [self.kept[one.prompt_id, one.prompt] for one in sets]
        for key in new:
            if self.kept[key].failure is not None:
                del self.kept[key]  # an engine that gave none now may give one the next time
        return found


@dataclass
class PromptRubrics:
    """Rubrics from the prompt alone, read, with what writing them took.

    Attributes:
        writer: writes and keeps them.
        judging: how they are read.
        engine: counts what the writer was asked.
    """

    writer: PromptWriter
    judging: Judging
    engine: Meter

    def write(
        self, sets: Sequence[ResponseSet], seeds: Sequence[int]
    ) -> list[tuple[Generation, Rubric | InvalidRubric, Cost]]:
        """Return each set's rubric: its text, what it reads as, and what writing it took."""
        texts = self.writer.write(sets, seeds)
        costs = written_costs(self.writer, self.engine, len(sets))
        return [
            (text, self.judging.read(text), cost) for text, cost in zip(texts, costs, strict=True)
        ]


@dataclass
class RubricEvaluator:
    """Scores by the weighted share of a rubric's criteria that a response meets.

    `dynamic` follows "Co-Evolving LLM Evaluators and Policies via DynamicRubric" (arXiv
    2607.20083): a rubric for each response set. `static` follows "Rubrics as Rewards" (Gunjal et
    al., 2025, arXiv 2507.17746), explicit aggregation: a rubric for each prompt, judged criterion
    by criterion, the weights of those that are met over the sum of all. `programmatic` is one
    rubric that a person wrote, read by a program.

    Differences from Rubrics as Rewards: rubrics are written by the generator at hand and not by a
    large model with a reference answer; weights are numbers 1 to 5 and not the categories Essential
    (1.0), Important (0.7), Optional (0.3), Pitfall (0.9); there are no negative criteria; an
    unscored verdict leaves its response unscored.

    Attributes:
        name: its name in tables.
        sees_set: whether the writer reads the responses.
        writer: writes the rubrics.
        judging: how they are read and applied; its limits are the caller's to check.
        engine: counts what the writer was asked; None where no model writes.
        verifier: counts what the verifier was asked.
    """

    name: str
    sees_set: bool
    writer: RubricWriter
    judging: Judging
    engine: Meter | None
    verifier: MeteredVerifier

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set; a seed is the one that its rubric is written with."""
        texts = self.writer.write(sets, seeds)
        written = written_costs(self.writer, self.engine, len(sets))
        judged = self.judging.judge_sets(texts, sets, seeds)
        spent = self.verdict_costs(judged)
        return [
            ScoredSet(one.scores, one, text.text, breakdown_of(text, one), a + b)
            for one, text, a, b in zip(judged, texts, written, spent, strict=True)
        ]

    def verdict_costs(self, judged: Sequence[JudgedSet]) -> list[Cost]:
        """Return what judging each set took: one request for each response that there is."""
        used = iter(self.verifier.take())
        costs = []
        for one in judged:
            asked = (
                0 if isinstance(one.rubric, InvalidRubric) else sum(map(_was_judged, one.verdicts))
            )
            costs.append(reduce(add, (next(used) for _ in range(asked)), Cost()))
        assert next(used, None) is None, "a verdict that belongs to no set"
        return costs


def written_costs(writer: RubricWriter, engine: Meter | None, num_sets: int) -> list[Cost]:
    """Return what writing each set's rubric took: nothing where it was kept."""
    costs = [Cost()] * num_sets
    if engine is None:
        return costs
    fresh = writer.fresh if isinstance(writer, PromptWriter) else range(num_sets)
    for place, cost in zip(fresh, engine.take(), strict=True):
        costs[place] = cost
    return costs


def breakdown_of(text: Generation, judged: JudgedSet) -> Mapping[str, object]:
    """Return what became of a rubric's text: nothing to say of a valid one."""
    if not isinstance(judged.rubric, InvalidRubric):
        return {}
    return {
        "invalid_rubric": str(judged.rubric.reason),
        "detail": judged.rubric.detail[:200],
        "finish_reason": text.finish_reason,
    }


def _was_judged(verdicts: Sequence[Verdict]) -> bool:
    """Whether the verifier was asked: not about a response that an engine never gave."""
    return all(failure_of(verdict.reason) is None for verdict in verdicts)
