"""Evaluators under several verifiers: blocks, orders, differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dynamicrubric.benchmarks.run import run
from dynamicrubric.benchmarks.settings import NamedVerifier, SwapSettings
from dynamicrubric.benchmarks.swap import (
    blocks_of,
    compare_blocks,
    generator_of,
    swap_tables,
    swapped,
    verifier_of,
)
from dynamicrubric.evaluators.spec import EvaluatorSpec
from dynamicrubric.recipe import VerifierConfig
from dynamicrubric.seeds import derive_seed


def settings() -> SwapSettings:
    named = tuple(
        NamedVerifier(
            name=name,
            verifier=VerifierConfig(error_rate=rate, failure_rate=0.0, max_unscored_rate=1.0),
        )
        for name, rate in (("exact", 0.0), ("noisy", 0.2))
    )
    specs = tuple(EvaluatorSpec(kind="dynamic", name=name) for name in ("g1", "g2"))
    return SwapSettings.model_validate(
        {"data": [{"name": "own", "path": "x.jsonl"}], "evaluators": specs, "reference": "g1",
         "verifiers": named}
    )  # fmt: skip


def test_every_evaluator_stands_under_every_verifier() -> None:
    specs = swapped(settings()).evaluators
    assert [one.label for one in specs] == ["g1 @ exact", "g2 @ exact", "g1 @ noisy", "g2 @ noisy"]
    odd = settings().model_copy(
        update={"evaluators": (EvaluatorSpec(kind="dynamic", name="a @ b"),)}
    )
    label = swapped(odd).evaluators[0].label
    assert (generator_of(label), verifier_of(label)) == ("a @ b", "exact")
    assert [one.verifier.error_rate for one in specs] == [0.0, 0.0, 0.2, 0.2]


def right_at(rate: float) -> Any:
    """Return a scorer's function that is right on a share of the items, the same in each call."""

    def score(one: Any, seed: int) -> list[float]:
        right = derive_seed("right", one.prompt_id) / 2**63 < rate
        return [
            (int(text.split()[1]) if right else 1 - int(text.split()[1])) / 1.0
            for text in one.responses
        ]

    return score


def test_order_that_turns_is_named_and_one_that_holds_is_not(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    rates = {"g1 @ exact": 0.9, "g2 @ exact": 0.6, "g1 @ noisy": 0.5, "g2 @ noisy": 0.7}
    scorers = [scorer(name, right_at(rate)) for name, rate in rates.items()]
    scored = run(task_for(scorers, items(100)), tmp_path)
    exact, noisy = blocks_of(scored)
    assert (exact.holds, exact.same_best, exact.tau) == (True, True, 1.0)
    assert (noisy.holds, noisy.same_best, noisy.tau) == (False, False, -1.0)
    assert noisy.reversed_pairs == (("g1", "g2"),)
    comparisons = compare_blocks(scored, settings())
    assert [(one.reference, one.other) for one in comparisons] == [
        ("g1 @ exact", "g2 @ exact"),
        ("g1 @ noisy", "g2 @ noisy"),
    ]
    assert comparisons[0].difference > 0 > comparisons[1].difference
    assert comparisons[0].p_holm >= comparisons[0].p_value
    blocks, orders, _ = swap_tables([exact, noisy], comparisons)
    assert [line[5] for line in blocks.lines] == ["1", "2", "2", "1"]
    assert [line[2] for line in orders.lines] == ["yes", "no"]
