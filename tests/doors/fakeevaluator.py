"""An evaluator that scores by length and can be held, broken or made to leave things out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from dynamicrubric.evaluators.base import Cost, ScoredSet
from dynamicrubric.evaluators.judging import JudgedSet, ResponseSet
from dynamicrubric.types import InvalidReason, InvalidRubric, Item, Rubric, Score, Verdict

RUBRIC = Rubric((Item("is there", 3), Item("is long", 2)))
LONG = 10


class FakeEvaluator:
    """A response is there or not, and long or not; the prompt says what goes wrong.

    Attributes:
        sizes: of the batches so far.
        seen: prompts so far.
        seeds: seeds so far.
        entered: set when a batch begins.
        released: a batch of a held evaluator waits for it.
        threads: names of the threads that scored.
    """

    name = "fake"
    sees_set = True

    def __init__(self, *, held: bool = False, slowly: Callable[[], None] | None = None) -> None:
        self.sizes: list[int] = []
        self.seen: list[str] = []
        self.seeds: list[int] = []
        self.entered = threading.Event()
        self.released = threading.Event()
        self.threads: set[str] = set()
        self._slowly = slowly
        if not held:
            self.released.set()

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        self.threads.add(threading.current_thread().name)
        self.sizes.append(len(sets))
        self.seen += [one.prompt for one in sets]
        self.seeds += seeds
        self.entered.set()
        assert self.released.wait(60)
        if self._slowly:
            self._slowly()
        if any(one.prompt == "a fault of ours" for one in sets):
            raise RuntimeError("a fault of ours")
        if any(one.prompt == "the verifier is down" for one in sets):
            from dynamicrubric.errors import InstrumentError

            raise InstrumentError("the verifier is down")
        return [_scored(one) for one in sets]


def _scored(one: ResponseSet) -> ScoredSet:
    cost = Cost(1, 10, 5, 2 * len(one.shown))
    if one.prompt == "no rubric":
        scores = tuple(Score.unscored(r or "invalid_rubric:not_json") for r in one.reasons)
        rubric = InvalidRubric(InvalidReason.NOT_JSON, "column 1")
        return ScoredSet(scores, JudgedSet(rubric, (), scores), "nonsense", {}, cost)
    verdicts = tuple(
        (Verdict.unscored(r),) * 2 if r else (Verdict.yes(0.9), _long(text))
        for text, r in zip(one.responses, one.reasons, strict=True)
    )
    scores = tuple(
        Score.unscored(r) if r else Score.of(1.0 if len(text) >= LONG else 0.6)
        for text, r in zip(one.responses, one.reasons, strict=True)
    )
    return ScoredSet(scores, JudgedSet(RUBRIC, verdicts, scores), "[the rubric]", {"k": 1}, cost)


def _long(text: str) -> Verdict:
    return Verdict.yes() if len(text) >= LONG else Verdict.no()
