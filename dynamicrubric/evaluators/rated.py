"""Evaluators by which a language model rates: G-Eval, FLASK, and a rubric judged as a whole.

All three read a rating as `ratings` does: the distribution over the rating's tokens where the
answer begins, with a floor on what they cover; the score is the expected rating from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Final

from dynamicrubric.engines.base import Generation
from dynamicrubric.engines.rating import Rated, Rater, RateRequest
from dynamicrubric.evaluators.base import Cost, ScoredSet
from dynamicrubric.evaluators.baselines import left_out
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.evaluators.rubricscores import PromptRubrics
from dynamicrubric.prompts.judges import (
    geval_messages,
    implicit_messages,
    skill_messages,
    skill_need_messages,
)
from dynamicrubric.ratings import ONE_TO_FIVE, ONE_TO_TEN, Rating
from dynamicrubric.types import InvalidRubric, Score, mean_of

SKILLS: Final = (
    "logical robustness: the reasoning holds together and contradicts itself nowhere",
    "logical correctness: the final answer is right",
    "logical efficiency: the reasoning takes no step that is not needed",
    "factuality: what is stated as a fact is true and supported",
    "commonsense understanding: the world is seen as people know it",
    "comprehension: what the prompt asks for is understood and done",
    "insightfulness: there is a thought that is new or not obvious",
    "completeness: everything that matters is said, in enough depth",
    "metacognition: what is not known or cannot be done is said",
    "readability: it is well ordered and easy to read",
    "conciseness: nothing is said that the reader does not need",
    "harmlessness: nothing in it does harm or treats anybody unfairly",
)
"""FLASK's twelve skills, in our words."""
Prompt = tuple[str, str]
"""Id and text: of what is kept a prompt nothing depends on which data sets were read before."""


@dataclass(frozen=True)
class GEvalEvaluator:
    """Scores by the expected rating of a form that a judge fills in.

    Follows "G-Eval: NLG Evaluation using GPT-4 with Better Human Alignment" (Liu et al., 2023,
    arXiv 2303.16634): task, criteria and evaluation steps, then a rating from 1 to 5, weighted by
    the probabilities of its tokens.

    Differences: one criterion, quality, where the paper rates four of a summary; the steps are
    written once (`prompts/texts/geval.txt`) and not by the judge; probabilities are read where the
    answer begins and not estimated from 20 samples; they are normalised over the five ratings, and
    a rating with too little probability is unscored.
    """

    rater: Rater
    name: str = "geval"
    sees_set: bool = False

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set; the seeds change nothing."""
        asked = [
            [RateRequest(geval_messages(one.prompt, text), ONE_TO_FIVE) for text in one.responses]
            for one in sets
        ]
        answers = rate_present(self.rater, sets, asked)
        return [_by_rating(one, rated) for one, rated in zip(sets, answers, strict=True)]


@dataclass
class FlaskEvaluator:
    """Scores by the mean over the skills that a prompt takes, each rated 1 to 5.

    Follows "FLASK: Fine-grained Language Model Evaluation based on Alignment Skill Sets" (Ye et
    al., 2023, arXiv 2307.10928): twelve skills, three of which are chosen for each prompt, each
    rated by a judge for each response.

    Differences: skills are chosen by how much the judge says that the prompt takes them, 1 to 5,
    and not named by GPT-4 in free text; there is no reference answer, domain or difficulty, and no
    checklist of each instance (FLASK-Hard); a rating is an expectation over its tokens; skills are
    averaged to one score, which the paper shows apart (they are in the breakdown).

    Attributes:
        rater: the judge.
        num_skills: skills that a prompt is judged by.
        name: its name in tables.
        sees_set: False.
    """

    rater: Rater
    num_skills: int = 3
    name: str = "flask"
    sees_set: bool = False
    _chosen: dict[Prompt, tuple[str, ...] | str] = field(default_factory=dict, repr=False)

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set; a prompt's skills are chosen when it is first met."""
        chosen = self._choose(sets)
        skills = [self._chosen[_key(one)] for one in sets]
        asked = [
            [
                RateRequest(skill_messages(one.prompt, text, skill), ONE_TO_FIVE)
                for text in one.responses
                for skill in ([] if isinstance(named, str) else named)
            ]
            for one, named in zip(sets, skills, strict=True)
        ]
        answers = rate_present(self.rater, sets, asked)
        for key in [key for key, named in self._chosen.items() if isinstance(named, str)]:
            del self._chosen[key]  # what failed now may be answered the next time
        return [
            _by_skills(one, named, rated, cost)
            for one, named, rated, cost in zip(sets, skills, answers, chosen, strict=True)
        ]

    def _choose(self, sets: Sequence[ResponseSet]) -> list[Cost]:
        """Choose the skills of new prompts; return what that took, for the set that was first."""
        new = dict.fromkeys(_key(one) for one in sets if _key(one) not in self._chosen)
        requests = [
            RateRequest(skill_need_messages(prompt, skill), ONE_TO_FIVE)
            for _, prompt in new
            for skill in SKILLS
        ]
        rated = self.rater.rate(requests) if requests else []
        costs = {}
        for place, key in enumerate(new):
            needs = rated[place * len(SKILLS) : (place + 1) * len(SKILLS)]
            self._chosen[key] = chosen_skills([one.rating for one in needs], self.num_skills)
            costs[key] = cost_of(needs)
        return [costs.pop(_key(one), Cost()) for one in sets]


@dataclass
class ImplicitEvaluator:
    """Scores by one rating, 1 to 10, that a judge gives by a whole rubric.

    Follows the implicit aggregation of "Rubrics as Rewards" (Gunjal et al., 2025, arXiv
    2507.17746): the judge sees prompt, response and all criteria, and says one number.

    Differences: the rubric is the same as that of `static`, see there; the number is the
    expectation over its tokens and not the one that was sampled; 10, which many vocabularies spell
    in two tokens, gets its part of the probability of "1" where it is known how it goes on.
    """

    rater: Rater
    rubrics: PromptRubrics
    name: str = "static_implicit"
    sees_set: bool = False

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set; the rubric is written when a prompt is first met."""
        written = self.rubrics.write(sets, seeds)
        asked = [
            [
                RateRequest(implicit_messages(one.prompt, text, rubric.items), ONE_TO_TEN)
                for text in one.responses
            ]
            if not isinstance(rubric, InvalidRubric)
            else []
            for one, (_, rubric, _) in zip(sets, written, strict=True)
        ]
        answers = rate_present(self.rater, sets, asked)
        return [
            _with_rubric(one, text, rubric, rated, cost)
            for one, (text, rubric, cost), rated in zip(sets, written, answers, strict=True)
        ]


def _key(one: ResponseSet) -> Prompt:
    return one.prompt_id, one.prompt


def rate_present(
    rater: Rater, sets: Sequence[ResponseSet], asked: Sequence[Sequence[RateRequest]]
) -> list[list[Rated]]:
    """Ask for the ratings of all sets in one call, but those of places without a response.

    Args:
        rater: the judge.
        sets: the sets.
        asked: for each set its requests, the same number for each of its responses, in order.

    Returns:
        Ratings in the form of `asked`.
    """
    wanted = [
        [
            request
            for request, is_there in zip(requests, _present(one, len(requests)), strict=True)
            if is_there
        ]
        for one, requests in zip(sets, asked, strict=True)
    ]
    flat = [request for requests in wanted for request in requests]
    answers = iter(rater.rate(flat) if flat else [])
    found = [
        [
            next(answers) if is_there else Rated(Rating.unscored("no_response"))
            for is_there in _present(one, len(requests))
        ]
        for one, requests in zip(sets, asked, strict=True)
    ]
    assert next(answers, None) is None, "the judge gave more ratings than it was asked for"
    return found


def chosen_skills(needs: Sequence[Rating], num_skills: int) -> tuple[str, ...] | str:
    """Return the skills that a prompt takes most, in the order of `SKILLS`.

    Returns:
        A reason instead where the judge rated fewer skills than are chosen.
    """
    rated = [(need.mean, -place) for place, need in enumerate(needs) if need.mean is not None]
    if len(rated) < num_skills:
        reason = next(need.reason for need in needs if need.reason is not None)
        return f"no_skills:{reason}"
    places = sorted(-place for _, place in sorted(rated, reverse=True)[:num_skills])
    return tuple(SKILLS[place] for place in places)


def cost_of(rated: Iterable[Rated]) -> Cost:
    """Return what ratings took together."""
    costs = (Cost(one.calls, one.prompt_tokens, one.completion_tokens) for one in rated)
    return reduce(add, costs, Cost())


def _present(one: ResponseSet, num_requests: int) -> list[bool]:
    """Say of each request whether its response is there."""
    each = num_requests // len(one.responses) if one.responses else 0
    return [reason is None for reason in one.reasons for _ in range(each)]


def _by_rating(one: ResponseSet, rated: Sequence[Rated]) -> ScoredSet:
    scores = left_out(one, [answer.rating.score for answer in rated])
    ratings = [answer.rating.mean for answer in rated]
    return ScoredSet(scores, breakdown={"ratings": ratings}, cost=cost_of(rated))


def _by_skills(
    one: ResponseSet, skills: tuple[str, ...] | str, rated: Sequence[Rated], chosen: Cost
) -> ScoredSet:
    cost = chosen + cost_of(rated)
    if isinstance(skills, str):
        scores = [Score.unscored(skills)] * len(one.responses)
        return ScoredSet(left_out(one, scores), cost=cost)
    rows = [rated[i * len(skills) : (i + 1) * len(skills)] for i in range(len(one.responses))]
    return ScoredSet(
        left_out(one, [_mean_score([r.rating for r in row]) for row in rows]),
        breakdown={
            "skills": [skill.partition(":")[0] for skill in skills],
            "ratings": [[r.rating.mean for r in row] for row in rows],
        },
        cost=cost,
    )


def _mean_score(ratings: Sequence[Rating]) -> Score:
    """Return the mean over skills; one unscored rating leaves the response unscored."""
    mean = mean_of([rating.score for rating in ratings])
    if mean.value is None or mean.n_unscored:
        return Score.unscored(next(iter(mean.reasons)))
    return Score.of(min(1.0, mean.value))


def _with_rubric(
    one: ResponseSet,
    text: Generation,
    rubric: object,
    rated: Sequence[Rated],
    written: Cost,
) -> ScoredSet:
    if isinstance(rubric, InvalidRubric):
        scores = [Score.unscored(f"invalid_rubric:{rubric.reason}")] * len(one.responses)
        breakdown = {"invalid_rubric": str(rubric.reason), "detail": rubric.detail[:200]}
        return ScoredSet(left_out(one, scores), None, text.text, breakdown, written)
    found = _by_rating(one, rated)
    return ScoredSet(found.scores, None, text.text, found.breakdown, written + found.cost)
