"""Tables of a benchmark: what their cells say."""

from __future__ import annotations

from dynamicrubric.benchmarks.compare import Comparison
from dynamicrubric.benchmarks.table import comparison_table

FOUND = Comparison(
    reference="trained", other="random", dataset="study", subset="P_0", difference=0.127,
    interval=(0.111, 0.144), p_value=6.2e-35, p_holm=0.0182, n_items=940, lacking="",
    over="seeds and prompts", by_seed={1: 0.133, 2: 0.136},
)  # fmt: skip


def test_small_p_is_not_said_to_be_zero() -> None:
    table = comparison_table([FOUND])
    cells = dict(zip(table.header, table.lines[0], strict=True))
    assert cells["p"] == "<0.0001"
    assert cells["p (Holm)"] == "0.0182"
    assert cells["difference"] == "trained - random"
