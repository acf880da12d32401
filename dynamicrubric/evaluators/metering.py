"""What calls took, by request: engines and verifiers that keep count of what they were asked.

Tokens are those of the prompts as they were rendered and of the completions as they came. An
endpoint tells its totals alone, so what a call of several requests took there is shared evenly.
No torch: what an engine can tell is asked of it by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import (
    GenerateEngine,
    GenerateRequest,
    Generation,
    JudgeRequest,
    Verifier,
)
from dynamicrubric.engines.rating import parts
from dynamicrubric.evaluators.base import Cost
from dynamicrubric.prompts.verifier import context_ids, question_ids
from dynamicrubric.types import Verdict


class Meter(Protocol):
    """Knows what requests took."""

    def take(self) -> list[Cost]:
        """Return what each request since the last call took, in order."""
        ...


@dataclass
class MeteredEngine:
    """Samples with another engine, and knows what each request took (a `GenerateEngine`)."""

    engine: GenerateEngine
    _used: list[Cost] = field(default_factory=list)

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling) -> list[Generation]:
        """Return one generation for each request, in order."""
        before = endpoint_total(self.engine)
        found = self.engine.generate(requests, sampling)
        if before is not None:
            self._used += shared(self.engine, before, len(requests))
        else:
            self._used += [_of(*pair) for pair in zip(requests, found, strict=True)]
        return found

    def take(self) -> list[Cost]:
        """Return what each request since the last call took, in order."""
        used, self._used = self._used, []
        return used


@dataclass
class MeteredVerifier:
    """Judges with another verifier, and knows what each request took (a `Verifier`)."""

    verifier: Verifier
    _used: list[Cost] = field(default_factory=list)

    def accepts(self, criterion: str) -> bool:
        """Return whether the criterion is one that the verifier can judge at all."""
        return self.verifier.accepts(criterion)

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        """Return one verdict for each criterion of each request, in order."""
        before = endpoint_total(self.verifier)
        found = self.verifier.judge(requests)
        if before is not None:
            costs = shared(self.verifier, before, len(requests))
        else:
            costs = _rendered(self.verifier, requests)
        self._used += [
            replace(cost, verdicts=len(request.criteria))
            for request, cost in zip(requests, costs, strict=True)
        ]
        return found

    def take(self) -> list[Cost]:
        """Return what each request since the last call took, in order."""
        used, self._used = self._used, []
        return used


def endpoint_total(engine: object) -> Cost | None:
    """Return what an endpoint's engine has spent so far; None for an engine of our own."""
    total: Any = getattr(engine, "cost", None)
    if total is None:
        return None
    return Cost(total.calls, total.prompt_tokens, total.completion_tokens)


def shared(engine: object, before: Cost, num_requests: int) -> list[Cost]:
    """Share what an endpoint took since `before` evenly among requests, the rest to the first."""
    now = endpoint_total(engine)
    if not num_requests or now is None:
        return []
    counts = [
        parts(after - earlier, num_requests)
        for after, earlier in (
            (now.calls, before.calls),
            (now.prompt_tokens, before.prompt_tokens),
            (now.completion_tokens, before.completion_tokens),
        )
    ]
    return [Cost(*part) for part in zip(*counts, strict=True)]


def _of(request: GenerateRequest, found: Generation) -> Cost:
    if found.failure is not None:
        return Cost()
    return Cost(1, len(request.prompt_ids), len(found.token_ids))


def _rendered(verifier: Any, requests: Sequence[JudgeRequest]) -> list[Cost]:  # noqa: ANN401
    """Count the prompts of a verifier that takes token ids; a program takes none."""
    if hasattr(verifier, "questions"):
        return _packed(verifier.questions(requests), len(requests))
    frame = getattr(getattr(verifier, "tokenizer", None), "frame", None)
    if frame is None:
        return [Cost()] * len(requests)
    costs = []
    for request in requests:
        context = len(context_ids(frame, request.prompt, request.response))
        tokens = sum(context + len(question_ids(frame, c)) for c in request.criteria)
        costs.append(Cost(len(request.criteria), tokens, len(request.criteria)))
    return costs


def _packed(questions: Any, num_requests: int) -> list[Cost]:  # noqa: ANN401
    """Count packed passes: a response's questions stand once behind it, for whoever asks first."""
    costs = [Cost()] * num_requests
    counted: set[int] = set()
    for place, keys in enumerate(questions.places):
        groups = {key[0] for key in keys if key is not None} - counted
        for group in (questions.groups[index] for index in groups):
            tokens = len(group.prefix) + sum(map(len, group.questions))
            costs[place] += Cost(calls=1, prompt_tokens=tokens)
        counted |= groups
    return costs
