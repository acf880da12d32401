"""What calls to endpoints came to: sums that say when they are not known."""

from __future__ import annotations

from dynamicrubric.report.costs import Cost, mean_cost, summed
from dynamicrubric.report.pagetables import cost_grids

CALLS = {"cost/calls": 2.0, "cost/prompt_tokens": 30.0, "cost/completion_tokens": 4.0}


def cost(paid: dict[str, float] | None) -> Cost:
    return Cost(1.0, 2.0, 3.0, 4.0, 5.0, paid=paid)


def test_sum_with_an_unknown_price_has_none_and_its_calls_are_all_counted() -> None:
    found = summed([cost({**CALLS, "cost/price": 0.5}), cost(None), cost(CALLS)]).paid
    assert found is not None
    assert found["cost/price"] is None
    assert found["cost/calls"] == 4.0


def test_mean_over_seeds_divides_what_was_paid() -> None:
    found = mean_cost([cost({**CALLS, "cost/price": 0.5}), cost({**CALLS, "cost/price": 1.5})])
    assert found.paid is not None
    assert found.paid["cost/price"] == 1.0
    assert found.paid["cost/calls"] == 2.0


def test_page_has_a_table_of_calls_only_where_there_were_any() -> None:
    assert len(cost_grids({"frozen": cost(None)})) == 1
    grids = cost_grids({"frozen": cost(None), "judged": cost({**CALLS, "cost/price": 0.25})})
    assert len(grids) == 2
    assert grids[1].rows[0][1:] == ("–",) * 4  # noqa: RUF001 - the sign of no value
    assert grids[1].rows[1] == ("judged", "2", "30", "4", "0.2500")
