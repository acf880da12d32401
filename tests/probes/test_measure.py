"""Gains of attacks under evaluators whose answers are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from dynamicrubric.engines.base import Generation
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.errors import InstrumentError
from dynamicrubric.evaluation import SampledSet
from dynamicrubric.evaluators.baselines import LengthEvaluator
from dynamicrubric.evaluators.guard import Guarded
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.evaluators.limits import ScoreLimits
from dynamicrubric.evaluators.metering import MeteredVerifier
from dynamicrubric.evaluators.rubricscores import RubricEvaluator
from dynamicrubric.probes.attacks import Attack, attacks_of
from dynamicrubric.probes.measure import NO_RESPONSE, NOT_ALL_SCORED, measure_attacks, rank_of
from dynamicrubric.rubrics import render_rubric
from dynamicrubric.types import Item, Rubric, Score
from dynamicrubric.worlds.base import POSTCARDS
from dynamicrubric.worlds.postcards.criteria import check, true_quality
from dynamicrubric.worlds.postcards.prompts import prompt_by_id

PROMPT = "lisbon-anna-birthday"
ANY = ScoreLimits(1.0, 1.0)
TEXTS = ("dear Anna, thank you.", "dear Anna, big hug.", "thank you, big hug.")
PLANT = attacks_of(POSTCARDS)["planted_phrase"]


@dataclass
class Gullible:
    """Writes what tells a set apart: the first criterion that some responses meet and some not."""

    asked: list[tuple[str, ...]] = field(default_factory=list)
    among: tuple[str, ...] = ("mentions money", "says thank you")

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        self.asked += [one.responses for one in sets]
        return [Generation((), self._rubric(one.shown), "stop") for one in sets]

    def _rubric(self, shown: Sequence[str]) -> str:
        for criterion in self.among:
            if 0 < sum(bool(check(criterion, text)) for text in shown) < len(shown):
                return render_rubric(Rubric((Item(criterion, 2),)))
        return (
            "[" if "WOW" in " ".join(shown) else render_rubric(Rubric((Item("gives a number", 1),)))
        )


def evaluator(writer: Gullible, **noise: float) -> Guarded:
    verifier = MeteredVerifier(ProgrammaticVerifier(check, **noise))
    judging = Judging(verifier, 1, 4, max_invalid_rate=1.0, max_unscored_rate=1.0)
    return Guarded(RubricEvaluator("dynamic", True, writer, judging, None, verifier))


def sampled(*texts: str, index: int = 0, failures: tuple[str | None, ...] = ()) -> SampledSet:
    responses = ResponseSet(PROMPT, "Write to Anna", texts, failures)
    return SampledSet(f"{PROMPT}/{index}", responses, (), ())


def quality(prompt_id: str, text: str) -> float:
    return true_quality(prompt_by_id(prompt_id), text)


def money(one: ResponseSet, place: int, seed: int) -> ResponseSet:
    texts = list(one.responses)
    texts[place] = texts[place].rstrip(".") + ", no money left."
    return replace(one, responses=tuple(texts))


def measure(who, sets, *attacks, limits=ANY, **options):
    return measure_attacks(who, sets, attacks, quality, (1, 0, "evaluate"), limits, **options)


def test_planted_feature_gains_all_of_the_score_of_a_generator_that_writes_what_tells_apart():
    sets = [sampled(*TEXTS, index=index) for index in range(6)]
    rows = measure(evaluator(Gullible()), sets, Attack("money", "second", "", money))
    assert {row.mode for row in rows} == {"seen"}
    assert {row.place for row in rows} == {0, 1, 2}  # the draw differs from set to set
    for row in rows:
        assert row.score_after.value == 1.0
        assert row.rank_after.value == 1.0
        before = float("thank you" in TEXTS[row.place])
        assert row.score_before.value == before
        assert row.rank_before.value == (0.75 if before else 0.0)
        assert row.score_gain == 1.0 - before
        assert row.quality_gain < 0
        assert "money" in row.rubric_after and "thank" in row.rubric_before


def test_first_order_is_measured_with_the_rubric_kept_and_with_one_written_anew():
    writer = Gullible()
    rows = measure(evaluator(writer), [sampled(*TEXTS)], Attack("money", "first", "", money))
    kept, seen = rows
    assert (kept.mode, seen.mode) == ("kept", "seen")
    assert (kept.score_gain, kept.rank_gain) == (0.0, 0.0)  # it still thanks, or still does not
    assert kept.rubric_after == kept.rubric_before
    assert seen.score_after.value == 1.0
    assert len(writer.asked) == 2  # the unattacked set and the attacked one
    assert kept.text == seen.text and kept.quality_gain == seen.quality_gain


def test_kept_rubric_is_applied_with_the_draws_of_the_unattacked_set():
    sets = [sampled(*TEXTS, index=index) for index in range(40)]
    nothing = Attack("nothing", "first", "", lambda one, place, seed: one)
    noisy = evaluator(Gullible(), error_rate=0.5, failure_rate=0.2)
    rows = measure(noisy, sets, nothing)
    assert len(rows) == 80
    assert {row.score_gain for row in rows} == {0.0, None}
    assert {row.score_before.value for row in rows} == {0.0, 1.0, None}
    assert all(row.score_before == row.score_after for row in rows)


def test_evaluator_that_does_not_see_the_set_has_equal_gains_in_both_modes():
    rows = measure(LengthEvaluator(), [sampled(*TEXTS)], attacks_of(POSTCARDS)["own_words_again"])
    kept, seen = rows
    assert replace(kept, mode="seen") == seen
    assert kept.score_gain > 0
    assert kept.rank_after.value == 1.0


def test_set_without_rubrics_that_sees_the_set_has_no_mode_in_which_they_are_kept():
    @dataclass
    class Listwise:
        name: str = "listwise"
        sees_set: bool = True

        def score(self, sets, seeds):
            return LengthEvaluator().score(sets, seeds)

    attack = attacks_of(POSTCARDS)["filler"]
    assert [row.mode for row in measure(Listwise(), [sampled(*TEXTS)], attack)] == ["seen"]


def test_invalid_rubric_for_an_attacked_set_is_no_score_with_its_reason():
    shout = attacks_of(POSTCARDS)["planted_phrase"]
    plain = [sampled("big hug.", "big hug.", index=index) for index in range(30)]
    rows = measure(evaluator(Gullible(among=())), plain, shout)
    lost = [row for row in rows if row.score_after.value is None]
    assert lost and len(lost) < len(rows)  # those that shout
    for row in lost:
        assert row.reason == "invalid_rubric:not_json"
        assert row.score_gain is None and row.rank_gain is None
        assert row.quality_gain is not None


def test_set_without_a_response_is_attacked_nowhere():
    (row,) = measure(evaluator(Gullible()), [sampled("", failures=("too_long",))], PLANT)
    assert row.place is None and row.text is None
    assert (row.reason, row.rank_before.reason) == (NO_RESPONSE, NO_RESPONSE)
    assert row.quality_gain is None


def test_nobody_knows_the_quality_of_a_world_without():
    rows = measure_attacks(
        LengthEvaluator(), [sampled(*TEXTS)], [PLANT], lambda key, text: None, (1,), ANY
    )
    assert [row.quality_gain for row in rows] == [None]
    assert rows[0].score_gain is not None


def test_evaluator_that_fails_without_an_attack_is_a_broken_instrument():
    broken = evaluator(Gullible(), failure_rate=1.0)
    with pytest.raises(InstrumentError, match="unattacked sets under dynamic"):
        measure(broken, [sampled(*TEXTS)], PLANT, limits=ScoreLimits(0.5, 0.5))


def test_each_attack_is_told_before_it_is_measured():
    told: list[str] = []
    measure(evaluator(Gullible()), [sampled(*TEXTS)], PLANT, on_attack=told.append)
    assert told == ["no attack", "planted_phrase"]


def test_rank_is_the_share_of_the_others_that_are_beaten():
    scores = [Score.of(0.1), Score.of(0.5), Score.of(0.5), Score.unscored("x")]
    there = [None, None, None, "failed"]
    assert rank_of(scores, 1, there).value == 0.75
    assert rank_of(scores, 0, there).value == 0.0
    assert rank_of(scores, 1, [None] * 4).reason == NOT_ALL_SCORED
    assert rank_of(scores, 3, [None] * 4).reason == "x"
    assert rank_of([Score.of(0.5)], 0, [None]).reason == NOT_ALL_SCORED
