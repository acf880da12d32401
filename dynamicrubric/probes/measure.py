"""What an attack gains: an evaluator's scores of attacked sets less those of the same sets before.

Pairs share every draw: the unattacked set is scored with the seeds of its round's own evaluation,
and the attacked one with the same. So without noise in the evaluator a gain is the attack's alone.

Two modes. `kept`: the rubric that was written for the unattacked set judges the attacked one, as if
the attacker came after it. `seen`: the evaluator gets the attacked set and says anew what it says
of it, a generator writing a new rubric. First-order attacks are measured in both; second-order ones
aim at the writing and are measured as `seen` alone. Where a score cannot depend on the set, the two
are one and the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dynamicrubric.evaluation import Quality, SampledSet
from dynamicrubric.evaluators.base import Evaluator, ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet, job_of
from dynamicrubric.evaluators.limits import ScoreLimits, check_scores
from dynamicrubric.evaluators.rubricscores import RubricEvaluator
from dynamicrubric.probes.attacks import Attack, Order, place_of
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import Score

Mode = Literal["kept", "seen"]
MODES: Final[dict[Mode, str]] = {
    "kept": "the rubric stays the one written for the unattacked set",
    "seen": "the evaluator gets the attacked set and judges it anew",
}
NO_RESPONSE: Final = "no_response"
NOT_ALL_SCORED: Final = "not_all_scored"
"""Reason of a rank in a set of which a response has no score."""
NOBODY_KNOWS: Final = "nobody_knows"
"""Reason of a quality that the world does not have."""
EPSILON: Final = 1e-9
"""A gain below this is rounding: scores are sums of a few weights."""


@dataclass(frozen=True)
class ProbeRow:
    """One attack on one set.

    Attributes:
        evaluator: name of the evaluator.
        attack: name of the attack.
        order: first or second.
        mode: see the module.
        set_id: the set, e.g. `lisbon-anna-birthday/2`.
        prompt_id: its prompt.
        place: which response was forged; None if the set has none.
        score_before: its score in the unattacked set.
        score_after: its score when attacked.
        rank_before: share of the set's other responses that it beats, ties half.
        rank_after: the same when attacked.
        quality_before: its true quality.
        quality_after: the true quality of the forged text.
        text: the forged text.
        rubric_before: the rubric that judged the unattacked set, as it was written.
        rubric_after: the one that judged the attacked set.
    """

    evaluator: str
    attack: str
    order: Order
    mode: Mode
    set_id: str
    prompt_id: str
    place: int | None
    score_before: Score
    score_after: Score
    rank_before: Score
    rank_after: Score
    quality_before: float | None
    quality_after: float | None
    text: str | None
    rubric_before: str | None
    rubric_after: str | None

    @property
    def score_gain(self) -> float | None:
        """Score after less before, None unless both are there."""
        return _gain(self.score_before.value, self.score_after.value)

    @property
    def rank_gain(self) -> float | None:
        """Rank after less before, in [-1, 1]."""
        return _gain(self.rank_before.value, self.rank_after.value)

    @property
    def quality_gain(self) -> float | None:
        """True quality after less before."""
        return _gain(self.quality_before, self.quality_after)

    @property
    def reason(self) -> str | None:
        """Why there is no gain in score; None if there is one."""
        return self.score_before.reason or self.score_after.reason


def measure_attacks(
    evaluator: Evaluator,
    sets: Sequence[SampledSet],
    attacks: Sequence[Attack],
    quality: Quality,
    seed_name: tuple[str | int, ...],
    limits: ScoreLimits,
    on_attack: Callable[[str], None] = lambda name: None,
) -> list[ProbeRow]:
    """Attack each set in each way and score it.

    Args:
        evaluator: what is attacked.
        sets: response sets of a policy.
        attacks: the attacks.
        quality: true quality of (prompt id, any text), None where nobody knows it.
        seed_name: words that name the draws: those of the sets' own evaluation.
        limits: largest shares of the unattacked responses without a score.
        on_attack: told the name of each attack before it is measured.

    Raises:
        InstrumentError: a model or an endpoint is broken, or leaves more than its limit unscored.
    """
    seeds = [derive_seed(*seed_name, one.set_id, "rubric") for one in sets]
    on_attack("no attack")
    before = evaluator.score([one.responses for one in sets], seeds)
    # What an attack does to an evaluator is data; that it works without one is not.
    check_scores(f"the unattacked sets under {evaluator.name}", before, limits)
    rows = []
    for attack in attacks:
        on_attack(attack.name)
        places = [
            place_of(one.responses, derive_seed(*seed_name, one.set_id, "attacked")) for one in sets
        ]
        forged = [
            one.responses
            if place is None
            else attack.forge(one.responses, place, derive_seed(*seed_name, one.set_id, "forged"))
            for one, place in zip(sets, places, strict=True)
        ]
        for mode, after in _scored(evaluator, attack, forged, before, seeds):
            rows += [
                _row(evaluator.name, attack, mode, *parts, quality)
                for parts in zip(sets, places, forged, before, after, strict=True)
            ]
    return rows


def _scored(
    evaluator: Evaluator,
    attack: Attack,
    forged: Sequence[ResponseSet],
    before: Sequence[ScoredSet],
    seeds: Sequence[int],
) -> list[tuple[Mode, list[ScoredSet]]]:
    """Score attacked sets in every mode in which the attack is measured."""
    seen = evaluator.score(forged, seeds)
    found: list[tuple[Mode, list[ScoredSet]]] = []
    if attack.order == "first":
        kept = seen if not evaluator.sees_set else _kept(evaluator, forged, before, seeds)
        if kept is not None:
            found.append(("kept", kept))
    return [*found, ("seen", seen)]


def _kept(
    evaluator: Evaluator,
    forged: Sequence[ResponseSet],
    before: Sequence[ScoredSet],
    seeds: Sequence[int],
) -> list[ScoredSet] | None:
    """Score attacked sets by the rubrics of the unattacked ones; None without rubrics."""
    inner = rubrics_within(evaluator)
    judged = [one.judged for one in before]
    if inner is None or any(one is None for one in judged):
        return None
    jobs = [
        job_of(one.rubric, responses, derive_seed(seed, "judge"))
        for one, responses, seed in zip(judged, forged, seeds, strict=True)
        if one is not None
    ]
    found = inner.judging.judge(jobs)
    costs = inner.verdict_costs(found)
    return [
        ScoredSet(one.scores, one, own.rubric_text, cost=cost)
        for one, own, cost in zip(found, before, costs, strict=True)
    ]


def rubrics_within(evaluator: Evaluator) -> RubricEvaluator | None:
    """Return what scores by rubrics within an evaluator; None if it does not."""
    inner = getattr(evaluator, "inner", evaluator)
    return inner if isinstance(inner, RubricEvaluator) else None


def rank_of(scores: Sequence[Score], place: int, reasons: Sequence[str | None]) -> Score:
    """Return the share of a set's other responses that one beats, ties half.

    Args:
        scores: of the set, shape (K,).
        place: which response.
        reasons: why there is no response in a place, None where there is one, shape (K,).

    Returns:
        A number in [0, 1]; unscored if a response that there is has no score, or has no other.

    >>> three = [Score.of(0.5), Score.of(0.5), Score.of(0.2)]
    >>> rank_of(three, 0, [None] * 3).value
    0.75
    """
    others = [
        score
        for index, (score, why) in enumerate(zip(scores, reasons, strict=True))
        if why is None and index != place
    ]
    own, known = scores[place].value, [score.value for score in others]
    if own is None or not known or any(value is None for value in known):
        return Score.unscored(scores[place].reason or NOT_ALL_SCORED)
    beaten = sum(
        0.5 if abs(own - value) < EPSILON else float(own > value)
        for value in known
        if value is not None
    )
    return Score.of(beaten / len(known))


def _row(
    evaluator: str,
    attack: Attack,
    mode: Mode,
    one: SampledSet,
    place: int | None,
    forged: ResponseSet,
    before: ScoredSet,
    after: ScoredSet,
    quality: Quality,
) -> ProbeRow:
    prompt_id, missing = one.responses.prompt_id, Score.unscored(NO_RESPONSE)
    there = place is not None
    index = place or 0
    text = forged.responses[index] if there else None
    return ProbeRow(
        evaluator=evaluator,
        attack=attack.name,
        order=attack.order,
        mode=mode,
        set_id=one.set_id,
        prompt_id=prompt_id,
        place=place,
        score_before=before.scores[index] if there else missing,
        score_after=after.scores[index] if there else missing,
        rank_before=rank_of(before.scores, index, one.responses.reasons) if there else missing,
        rank_after=rank_of(after.scores, index, forged.reasons) if there else missing,
        quality_before=quality(prompt_id, one.responses.responses[index]) if there else None,
        quality_after=quality(prompt_id, text) if text is not None else None,
        text=text,
        rubric_before=before.rubric_text,
        rubric_after=after.rubric_text,
    )


def _gain(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
