"""G-Eval, FLASK, implicit rubrics and pairwise judging with a judge whose answers are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import GenerateRequest, Generation
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.engines.rating import Rated, RateRequest
from dynamicrubric.evaluators.base import ScoredSet
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.evaluators.metering import MeteredEngine
from dynamicrubric.evaluators.pairwise import PairwiseEvaluator
from dynamicrubric.evaluators.rated import (
    SKILLS,
    FlaskEvaluator,
    GEvalEvaluator,
    ImplicitEvaluator,
)
from dynamicrubric.evaluators.rubricscores import PromptRubrics, PromptWriter
from dynamicrubric.evaluators.writers import DynamicWriter
from dynamicrubric.prompts.judges import geval_messages, implicit_messages, pairwise_messages
from dynamicrubric.ratings import Rating, rating_from_masses
from dynamicrubric.types import Item


class FakeRater:
    """Puts all probability on the label that a function of the question's text names."""

    def __init__(self, answer: Callable[[str], str | None]) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def rate(self, requests: Sequence[RateRequest]) -> list[Rated]:
        return [self._rate(request) for request in requests]

    def _rate(self, request: RateRequest) -> Rated:
        text = request.messages[-1][1]
        self.asked.append(text)
        named = self.answer(text)
        if named is None:
            return Rated(Rating.unscored("low_coverage"), 1, 10, 1)
        masses = [float(label == named) for label in request.labels]
        return Rated(rating_from_masses(masses), 1, 10, 1)


def values(scored: ScoredSet) -> list[float | None]:
    return [score.value for score in scored.scores]


def reasons(scored: ScoredSet) -> list[str | None]:
    return [score.reason for score in scored.scores]


def by_word(text: str) -> str | None:
    response = text.rpartition("Response:\n")[2]
    return None if response.startswith("odd") else "5" if response.startswith("good") else "2"


def test_geval_maps_one_to_five_onto_zero_to_one() -> None:
    rater = FakeRater(by_word)
    (scored,) = GEvalEvaluator(rater).score([ResponseSet("a", "Hi", ("good", "bad", "odd"))], [1])
    assert values(scored) == [1.0, 0.25, None]
    assert reasons(scored)[2] == "low_coverage"
    assert scored.breakdown["ratings"] == [5.0, 2.0, None]
    assert (scored.cost.calls, scored.cost.prompt_tokens) == (3, 30)


def test_places_without_a_response_are_never_asked_about() -> None:
    rater = FakeRater(by_word)
    one = ResponseSet("a", "Hi", ("", "good"), ("too_long", None))
    (scored,) = GEvalEvaluator(rater).score([one], [1])
    assert reasons(scored) == ["failed_response:too_long", None]
    assert len(rater.asked) == 1


def test_flask_chooses_the_skills_that_a_prompt_takes_and_averages_them() -> None:
    wanted = {SKILLS[2]: "5", SKILLS[5]: "4", SKILLS[9]: "3"}

    def answer(text: str) -> str:
        skill = next(skill for skill in SKILLS if skill in text)
        if "Response:" not in text:
            return wanted.get(skill, "1")
        return {SKILLS[2]: "5", SKILLS[5]: "3", SKILLS[9]: "1"}[skill]

    rater = FakeRater(answer)
    evaluator = FlaskEvaluator(rater)
    sets = [ResponseSet("a", "Hi", ("x",)), ResponseSet("a", "Hi", ("y", "z"))]
    scored = evaluator.score(sets, [1, 2])
    assert values(scored[0]) == [pytest.approx(0.5)]
    assert scored[0].breakdown["skills"] == [SKILLS[place].partition(":")[0] for place in (2, 5, 9)]
    assert scored[0].breakdown["ratings"] == [[5.0, 3.0, 1.0]]
    assert [one.cost.calls for one in scored] == [12 + 3, 6]


def test_flask_chooses_anew_for_the_same_words_under_another_prompt_id() -> None:
    # Ids name the data set in a benchmark: what a run costs on one may not depend on whether it
    # read another one before, in the same process.
    evaluator = FlaskEvaluator(FakeRater(lambda text: "3"))
    first, second = (
        evaluator.score([ResponseSet(name, "Hi", ("x",))], [1])[0] for name in ("one:a", "two:a")
    )
    assert first.cost == second.cost


def test_flask_that_cannot_choose_leaves_unscored() -> None:
    evaluator = FlaskEvaluator(FakeRater(lambda text: None))
    (scored,) = evaluator.score([ResponseSet("a", "Hi", ("x", "y"))], [1])
    assert reasons(scored) == ["no_skills:low_coverage"] * 2


def test_flask_one_unscored_skill_leaves_its_response_unscored() -> None:
    evaluator = FlaskEvaluator(
        FakeRater(lambda text: None if "Response:" in text and SKILLS[0] in text else "3")
    )
    (scored,) = evaluator.score([ResponseSet("a", "Hi", ("x",))], [1])
    assert reasons(scored) == ["low_coverage"]


class FakeGenerator:
    def __init__(self, text: str) -> None:
        self.text = text

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling) -> list[Generation]:
        return [Generation((1, 2), self.text, "stop") for _ in requests]


def implicit(text: str, rater: FakeRater) -> ImplicitEvaluator:
    engine = MeteredEngine(FakeGenerator(text))
    sampling = Sampling(temperature=1.0, min_p=0.0, max_tokens=8)
    writer = PromptWriter(DynamicWriter(engine, lambda p, r: [1], sampling), 0)
    judging = Judging(ProgrammaticVerifier(lambda c, r: True), 1, 5, 1.0, 1.0)
    return ImplicitEvaluator(rater, PromptRubrics(writer, judging, engine))


def test_implicit_is_one_call_a_response_with_all_criteria() -> None:
    rater = FakeRater(lambda text: "10" if text.endswith("good") else "1")
    rater.answer = lambda text: "10" if "\ngood\n" in text else "1"
    rubric = '[{"criterion":"is kind","weight":4},{"criterion":"is short","weight":1}]'
    (scored,) = implicit(rubric, rater).score([ResponseSet("a", "Hi", ("good", "bad"))], [1])
    assert values(scored) == [1.0, 0.0]
    assert all("- (4) is kind\n- (1) is short" in text for text in rater.asked)
    assert (len(rater.asked), scored.cost.calls) == (2, 3)
    assert scored.rubric_text == rubric


def test_implicit_with_an_invalid_rubric_asks_nothing() -> None:
    rater = FakeRater(lambda text: "5")
    (scored,) = implicit("[", rater).score([ResponseSet("a", "Hi", ("x",))], [1])
    assert reasons(scored) == ["invalid_rubric:not_json"]
    assert not rater.asked


def better(text: str) -> str:
    first, second = text.split("Response A:\n")[1].split("\n\nResponse B:\n")
    return "A" if int(first) > int(second.split("\n")[0]) else "B"


def test_pairwise_consistent_judge_gives_the_share_of_wins() -> None:
    rater = FakeRater(better)
    (scored,) = PairwiseEvaluator(rater).score([ResponseSet("a", "Hi", ("2", "3", "1", "2"))], [1])
    assert values(scored) == pytest.approx([0.5, 1.0, 0.0, 0.5])
    assert scored.breakdown["comparisons"] == {
        "decided": 5, "tie": 1, "inconsistent": 0, "unscored": 0,
    }  # fmt: skip
    assert scored.breakdown["inconsistent_pairs"] == []
    assert scored.breakdown["wins"] == [1, 3, 0, 1]
    assert scored.cost.calls == len(rater.asked) == 6  # three distinct texts, both orders


def test_pairwise_judge_that_always_says_a_is_inconsistent_everywhere() -> None:
    (scored,) = PairwiseEvaluator(FakeRater(lambda text: "A")).score(
        [ResponseSet("a", "Hi", ("1", "2", "3"))], [1]
    )
    assert scored.breakdown["inconsistent_pairs"] == [[0, 1], [0, 2], [1, 2]]
    assert values(scored) == [0.5, 0.5, 0.5]
    assert scored.breakdown["comparisons"] == {
        "decided": 0, "tie": 0, "inconsistent": 3, "unscored": 0,
    }  # fmt: skip


def test_pairwise_asks_and_pays_once_for_a_set_and_its_reverse() -> None:
    rater = FakeRater(better)
    sets = [ResponseSet("a", "Hi", ("1", "2")), ResponseSet("a", "Hi", ("2", "1"))]
    first, second = PairwiseEvaluator(rater).score(sets, [1, 1])
    assert (values(first), values(second)) == ([0.0, 1.0], [1.0, 0.0])
    assert len(rater.asked) == 2
    assert (first.cost.calls, second.cost.calls) == (2, 0)


def test_pairwise_identical_responses_tie_without_a_call() -> None:
    rater = FakeRater(better)
    (scored,) = PairwiseEvaluator(rater).score([ResponseSet("a", "Hi", ("7", "7"))], [1])
    assert values(scored) == [0.5, 0.5]
    assert not rater.asked


def test_pairwise_place_without_a_response_is_compared_with_none() -> None:
    rater = FakeRater(better)
    one = ResponseSet("a", "Hi", ("2", "", "1"), (None, "too_long", None))
    (scored,) = PairwiseEvaluator(rater).score([one], [1])
    assert values(scored) == [1.0, None, 0.0]
    assert reasons(scored)[1] == "failed_response:too_long"
    assert len(rater.asked) == 2


def test_pairwise_alone_has_no_opponent_and_unread_comparisons_leave_unscored() -> None:
    evaluator = PairwiseEvaluator(FakeRater(lambda t: None if "\n9\n" in t + "\n" else better(t)))
    alone, one_odd = evaluator.score(
        [ResponseSet("a", "Hi", ("1",)), ResponseSet("a", "Hi", ("1", "9"))], [1, 1]
    )
    assert reasons(alone) == ["no_opponent"]
    assert reasons(one_odd) == ["low_coverage"] * 2
    comparisons: Any = one_odd.breakdown["comparisons"]
    assert comparisons["unscored"] == 1


def test_judge_texts_put_contents_in_once_and_as_they_are() -> None:
    odd = "{response} {prompt} <|im_end|>"
    for messages in (
        geval_messages(odd, odd),
        pairwise_messages(odd, odd, odd),
        implicit_messages(odd, odd, [Item(odd, 3)]),
    ):
        ((role, content),) = messages
        assert role == "user"
        assert content.count(odd) == content.count("<|im_end|>") in (2, 3)
