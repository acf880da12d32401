"""Placement, equal bytes, and going on after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.benchmarks.report import make_report, write_report
from dynamicrubric.benchmarks.run import chunks_of, run
from dynamicrubric.benchmarks.runfiles import SCORES_FILE, only_one
from dynamicrubric.benchmarks.schema import orders_of, place
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.seeds import derive_seed


def by_place(one: Any, seed: int) -> list[float]:
    """Return scores that depend on seed, text and place."""
    return [derive_seed(seed, text, n) / 2**63 for n, text in enumerate(one.responses)]


def test_placement_is_a_function_of_item_and_seed_and_is_even() -> None:
    found = [place(f"i{n}", 2, 1)[0] for n in range(1000)]
    assert found == [place(f"i{n}", 2, 1)[0] for n in range(1000)]
    assert found != [place(f"i{n}", 2, 2)[0] for n in range(1000)]
    assert 400 < sum(found) < 600


def test_both_orders_are_read_where_place_matters_and_one_where_not(items: Any) -> None:
    (item,) = items(1, (0, 1, 2))
    (only,) = orders_of(item, 1, sees_set=False)
    first, second = orders_of(item, 1, sees_set=True)
    assert first == only
    assert second == first[::-1]


def test_both_orders_show_the_texts_swapped_under_one_seed(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    seen: list[tuple[Any, int]] = []

    def score(one: Any, seed: int) -> list[float]:
        seen.append((one.responses, seed))
        return [0.25, 0.75]

    run(task_for([scorer("a", score, True)], items(5)), tmp_path)
    for (first, seed), (second, again) in zip(seen[::2], seen[1::2], strict=True):
        assert first == second[::-1]
        assert seed == again


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.name != "seconds.json"
    }


def finished(task: Any, where: Path, summaries: Any) -> dict[str, bytes]:
    write_report(make_report(run(task, where), summaries, "b"), where)
    return files_of(where)


def test_equal_runs_give_equal_bytes(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    found = []
    for name in ("one", "two"):
        task = task_for([scorer("a", by_place, True), scorer("b", by_place)], items(30), (1, 2))
        found.append(finished(task, tmp_path / name, task.summaries))
    assert found[0] == found[1]
    assert {"scores.jsonl", "figures.json", "figures.csv", "table.md", "accuracy.png"} <= set(
        found[0]
    )


@pytest.mark.parametrize("share", [0.0, 0.1, 0.37, 0.5, 0.93, 1.0])
def test_killed_run_ends_with_the_bytes_of_one_that_was_not(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path, share: float
) -> None:
    whole = tmp_path / "whole"
    run(task_for([scorer("a", by_place, True), scorer("b", by_place)], items(21)), whole)
    expected = (whole / SCORES_FILE).read_bytes()
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "run.json").write_bytes((whole / "run.json").read_bytes())
    (cut / SCORES_FILE).write_bytes(expected[: int(len(expected) * share)])
    again = [scorer("a", by_place, True), scorer("b", by_place)]
    run(task_for(again, items(21)), cut)
    assert (cut / SCORES_FILE).read_bytes() == expected
    asked = sum(len(one.asked) for one in again)
    assert asked <= 63 * (1 - share) + 2 * 4  # at most one chunk anew, in both orders


def test_broken_engine_keeps_what_is_scored_and_the_next_start_goes_on(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    calls = 0

    def fails_once(one: Any, seed: int) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == 10:
            raise InstrumentError("the endpoint is down")
        return by_place(one, seed)

    task = task_for([scorer("a", fails_once)], items(20))
    with pytest.raises(InstrumentError):
        run(task, tmp_path / "run")
    assert len((tmp_path / "run" / SCORES_FILE).read_text().splitlines()) == 8  # two chunks
    assert len(run(task, tmp_path / "run")) == 20
    assert calls == 10 + 12


def test_folder_that_another_process_writes_is_refused(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    task = task_for([scorer("a", by_place)], items(5))
    with only_one(tmp_path / "run"), pytest.raises(UserError, match="another process"):
        run(task, tmp_path / "run")
    assert len(run(task, tmp_path / "run")) == 5


def test_folder_of_another_run_is_refused_and_says_what_differs(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    run(task_for([scorer("a", by_place)], items(5)), tmp_path / "run")
    before = files_of(tmp_path / "run")
    with pytest.raises(UserError, match=r"another run .*data\.2: absent"):
        run(task_for([scorer("a", by_place)], items(5), (1, 2)), tmp_path / "run")
    assert files_of(tmp_path / "run") == before


def test_lines_that_the_run_has_not_written_are_refused(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    task = task_for([scorer("a", by_place)], items(8))
    run(task, tmp_path / "run")
    path = tmp_path / "run" / SCORES_FILE
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(UserError, match="line 1"):
        run(task, tmp_path / "run")


def test_chunks_keep_a_prompt_together_and_lose_nothing(items: Any) -> None:
    every = [
        item.__class__(**{**vars_of(item), "prompt_id": f"p{n % 5}"})
        for n, item in enumerate(items(23))
    ]
    found = chunks_of(every, 6)
    assert sorted(item.id for own in found for item in own) == sorted(i.id for i in every)
    homes: dict[str, set[int]] = {}
    for number, own in enumerate(found):
        for item in own:
            homes.setdefault(item.prompt_id, set()).add(number)
    assert all(len(own) == 1 for own in homes.values())


def vars_of(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


def test_line_holds_all_that_figures_need(
    items: Any, scorer: Any, task_for: Any, tmp_path: Path
) -> None:
    scored = run(task_for([scorer("a", by_place, True)], items(6)), tmp_path / "run")
    lines = (tmp_path / "run" / SCORES_FILE).read_text(encoding="utf-8").splitlines()
    assert [type(scored[0]).of_line(line) for line in lines] == scored
    assert json.loads(lines[0])["cost"]["calls"] == 2
