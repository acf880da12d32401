"""Layouts: in every pass each question sees its own prompt, at its own positions, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.engines.packing import LEAST_ROOM, Group, plan_batches, plan_layouts, token_bound

IDS = st.lists(st.integers(0, 99), min_size=1, max_size=9)
ALIKE = st.lists(st.integers(0, 2), min_size=1, max_size=5)
GROUPS = st.lists(
    st.builds(Group, IDS, st.lists(IDS | ALIKE, min_size=1, max_size=6)), min_size=1, max_size=5
)


@settings(max_examples=80, deadline=None)
@given(groups=GROUPS, budget=st.integers(1, 80), fill=st.integers(1, 80))
def test_every_question_reads_its_own_prompt_once(
    groups: list[Group], budget: int, fill: int
) -> None:
    seen = []
    for layout in plan_layouts(groups, budget=budget, fill=fill):
        for key, place in layout.reads:
            seen.append(key)
            visible = [at for at in range(len(layout.ids)) if layout.allows(place, at)]
            group = groups[key[0]]
            prompt = [*group.prefix, *group.questions[key[1]]]
            assert [layout.ids[at] for at in visible] == prompt
            assert [layout.positions[at] for at in visible] == list(range(len(prompt)))
    assert sorted(seen) == [
        (g, q) for g, one in enumerate(groups) for q in range(len(one.questions))
    ]


@settings(max_examples=80, deadline=None)
@given(groups=GROUPS)
def test_each_beginning_behind_a_prefix_runs_once(groups: list[Group]) -> None:
    [layout] = plan_layouts(groups, budget=10_000, fill=10_000)
    beginnings = {
        (place, tuple(question[: end + 1]))
        for place, group in enumerate(groups)
        for question in group.questions
        for end in range(len(question))
    }
    assert len(layout.ids) == len(beginnings) + sum(len(group.prefix) for group in groups)
    assert len(layout.ids) <= token_bound(groups)


@settings(max_examples=40, deadline=None)
@given(groups=GROUPS, window=st.integers(1, 12))
def test_window_leaves_the_last_positions_alone_visible(groups: list[Group], window: int) -> None:
    for layout in plan_layouts(groups, budget=200, fill=50):
        for _, place in layout.reads:
            everything = [at for at in range(len(layout.ids)) if layout.allows(place, at)]
            seen = [at for at in everything if layout.allows(place, at, window)]
            assert seen == everything[-window:]


def test_tokens_of_the_prefix_see_no_question_and_no_later_token() -> None:
    [layout] = plan_layouts([Group([1, 2, 3], [[4], [5, 6]])], budget=99, fill=99)
    matrix = [[layout.allows(reader, read) for read in range(6)] for reader in range(6)]
    assert [[int(cell) for cell in row] for row in matrix] == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 1, 1, 0, 1, 1],
    ]
    assert layout.positions == (0, 1, 2, 3, 3, 4)


@settings(max_examples=80, deadline=None)
@given(groups=GROUPS, budget=st.integers(1, 80), fill=st.integers(1, 80))
def test_passes_and_batches_keep_to_the_budget(groups: list[Group], budget: int, fill: int) -> None:
    layouts = plan_layouts(groups, budget=budget, fill=fill)
    for one in layouts:
        prefix = max(block.prefix for block in one.blocks)
        assert len(one.ids) <= max(budget, prefix + budget // LEAST_ROOM) or len(one.reads) == 1
    batches = plan_batches(groups, budget=budget)
    assert all(one.num_tokens <= budget or len(one.rows) == 1 for one in batches)
    rows = {key: row for one in batches for key, row in zip(one.keys, one.rows, strict=True)}
    for key, row in rows.items():
        assert list(row) == [*groups[key[0]].prefix, *groups[key[0]].questions[key[1]]]
    assert len(rows) == sum(len(group.questions) for group in groups)


def test_batches_hold_rows_of_like_length() -> None:
    groups = [Group([1] * length, [[2]]) for length in (9, 2, 8, 3)]
    lengths = [[len(row) for row in one.rows] for one in plan_batches(groups, budget=20)]
    assert lengths == [[10, 9], [4, 3]]


def test_group_beyond_the_budget_is_spread_evenly_with_its_prefix_in_each() -> None:
    group = Group([1] * 10, [[2] * 5 for _ in range(9)])
    layouts = plan_layouts([group], budget=45, fill=1)
    assert [len(layout.reads) for layout in layouts] == [5, 4]
    assert all(layout.ids[:10] == (1,) * 10 for layout in layouts)


def test_prefix_that_fills_the_budget_is_not_read_again_for_each_question() -> None:
    groups = [Group([1] * length, [[2] * 5 for _ in range(16)]) for length in (75, 300)]
    layouts = plan_layouts(groups, budget=80, fill=1)
    assert [len(one.reads) for one in layouts] == [2] * 16  # room for 10 tokens behind either


@pytest.mark.parametrize("fill", [1, 256, 8192])
def test_tokens_run_are_the_bound_where_the_budget_holds_a_response(fill: int) -> None:
    groups = [Group([1] * (280 + k), [[q] * (14 + q % 5) for q in range(32)]) for k in range(8)]
    layouts = plan_layouts(groups, budget=8192, fill=fill)
    assert sum(len(layout.ids) for layout in layouts) == token_bound(groups)


def test_no_groups_are_no_passes() -> None:
    assert plan_layouts([], budget=10, fill=10) == []
    assert plan_batches([], budget=10) == []
    assert token_bound([]) == 0
