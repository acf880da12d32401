"""How remote engines read a verdict: by the answer slot's probabilities, or off the text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dynamicrubric.engines.base import FinishReason, PromptTokenizer
from dynamicrubric.engines.thinking import answer_of, answer_slot
from dynamicrubric.types import Verdict
from dynamicrubric.verdicts import (
    LabelIds,
    UnscoredReason,
    label_ids,
    read_verdict_text,
    verdict_from_logprobs,
)


@dataclass(frozen=True)
class SampledToken:
    """One token that a verifier wrote.

    Attributes:
        text: its text.
        top: token text -> raw natural-log probability of the likeliest tokens in its place, or of
            all labels. Tokens of one text are added up.
    """

    text: str
    top: Mapping[str, float]


@dataclass(frozen=True)
class VerdictReading:
    """Languages and limits of a verdict; see `verdict_from_logprobs`."""

    languages: tuple[str, ...] = ("en",)
    coverage_floor: float = 0.5
    undecided_band: float = 0.0

    def of_tokens(self, tokens: Sequence[SampledToken], *, opened: bool = False) -> Verdict:
        """Decide by the probabilities of the token that begins the answer.

        What follows it does not count, so a reply cut behind it is none the worse. A reply that
        never gets there, because its thinking does not end, is truncated.
        """
        if not tokens:
            return Verdict.unscored(UnscoredReason.EMPTY)
        slot = answer_slot([token.text for token in tokens], opened=opened)
        if slot is None:
            return Verdict.unscored(UnscoredReason.TRUNCATED)
        return self.of_logprobs(tokens[slot].top)

    def of_logprobs(self, top: Mapping[str, float]) -> Verdict:
        """Decide by the probabilities of the answer's first token."""
        return verdict_from_logprobs(
            top,
            languages=self.languages,
            coverage_floor=self.coverage_floor,
            undecided_band=self.undecided_band,
        )

    def of_text(self, reply: str, finish_reason: FinishReason, *, opened: bool = False) -> Verdict:
        """Read a reply's text, where there are no probabilities; a cut reply is truncated."""
        answer = answer_of(reply, opened=opened)
        return read_verdict_text(
            answer or "",
            finish_reason="length" if answer is None else finish_reason,
            languages=self.languages,
        )


def labels_of(tokenizer: PromptTokenizer, languages: Sequence[str]) -> LabelIds:
    """Return the ids of a vocabulary that say yes and those that say no.

    Raises:
        UserError: an unknown language, or a vocabulary without one of the two.
    """
    texts = {i: tokenizer.text_of(i) for i in tokenizer.content_ids}
    return label_ids(texts, languages=languages)


def add_up(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return text -> log of the summed probability: several tokens may share a text."""
    sums: dict[str, float] = {}
    for text, logprob in pairs:
        before = sums.get(text)
        sums[text] = logprob if before is None else _log_sum(before, logprob)
    return sums


def sampled_tokens(
    token_ids: Sequence[int],
    top: Sequence[Sequence[tuple[int, float]]],
    text_of: Callable[[int], str],
) -> list[SampledToken]:
    """Pair token ids with the probabilities in their places, as texts."""
    return [
        SampledToken(text_of(token), add_up((text_of(i), logprob) for i, logprob in place))
        for token, place in zip(token_ids, top, strict=True)
    ]


def _log_sum(a: float, b: float) -> float:
    high = max(a, b)
    if math.isinf(high) or math.isnan(a) or math.isnan(b):
        return a + b if math.isnan(a) or math.isnan(b) else high
    return high + math.log(math.exp(a - high) + math.exp(b - high))
