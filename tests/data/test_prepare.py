"""A prepared set from outside: what is in it, that every row is accounted for, what stays out."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.data.formats import Origin, parse_row
from dynamicrubric.data.prepare import prepare
from dynamicrubric.data.rows import AnchorRow
from dynamicrubric.data.settings import DataSettings, FilterSettings, SplitSettings
from dynamicrubric.data.splits import split_of_prompt
from dynamicrubric.data.store import RowStore, contradictions
from dynamicrubric.errors import UserError
from dynamicrubric.worlds.prepared import load_prepared
from tasks.artefact import load_artefact

Fields = dict[str, Any]
HALF = DataSettings(splits=SplitSettings(heldout_share=0.5))


def anchor_row(number: int, prompt: str, order: list[int], texts: str = "abc") -> AnchorRow:
    fields = {"id": str(number), "prompt": prompt, "responses": list(texts), "ranking": order}
    row = parse_row(fields, "plain", Origin("f", "CC0"))
    assert isinstance(row, AnchorRow)
    return row


@pytest.fixture
def mixed(
    write_jsonl: Callable[..., Path], anchor: Callable[..., Fields]
) -> Callable[[int], tuple[Path, list[Any]]]:
    """Return a function that writes rows of every fate; `seed` shuffles them."""

    def make(seed: int) -> tuple[Path, list[Any]]:
        rows: list[Any] = [anchor(number) for number in range(100)]
        rows += [anchor(3), anchor(5, id="again")]  # duplicate rows
        rows += [anchor(7, ranking=[6, 5, 4, 3, 2, 1, 0])]  # contradicts row 7
        rows += [anchor(9, responses=[f"Another answer {n}, on nine. " * 3 for n in range(7)])]
        rows += [anchor(200, responses=["a", "b"], ranking=[0, 1]), anchor(201, prompt="Why?")]
        rows += ["{broken"]
        random.Random(seed).shuffle(rows)
        return write_jsonl(f"mixed{seed}/rows.jsonl", rows), rows

    return make


def test_prepare_every_row_is_kept_or_removed_for_a_reason(
    tmp_path: Path,
    mixed: Callable[[int], tuple[Path, list[Any]]],
    write_jsonl: Callable[..., Path],
    anchor: Callable[..., Fields],
    read_lines: Callable[[Path], list[Fields]],
) -> None:
    source, rows = mixed(1)
    bench = write_jsonl("bench.jsonl", [anchor(11), anchor(12, prompt=anchor(12)["prompt"] + " ")])
    found = prepare([str(source)], [str(bench)], tmp_path / "out", HALF)
    tally = found.tally
    assert tally.removed == {
        "unreadable": {"not_json": 1},
        "filtered": {"few_responses": 1, "short_prompt": 1},
        "contaminated": {"prompt_equal": 2},
        "repeated": {"duplicate_row": 2, "contradictory": 2, "duplicate_prompt": 1},
    }
    assert tally.num_read == len(rows) == 107
    assert tally.num_kept == 107 - 10
    prompts = read_lines(tmp_path / "out" / "prompts.jsonl")
    kept = {line["row"] for line in prompts}
    assert {"row-3", "row-9", "row-99"} <= kept
    assert {"row-7", "row-11", "row-12", "row-200"} & kept == set()
    assert tally.steps()[-1][-1] == len(prompts) == tally.num_kept


def test_prepare_another_order_of_rows_gives_the_same_bytes(
    tmp_path: Path, mixed: Callable[[int], tuple[Path, list[Any]]]
) -> None:
    names = ("prompts.jsonl", "anchors.jsonl", "heldout_anchors.jsonl")
    texts = []
    for seed in (1, 2):
        out = tmp_path / f"out{seed}"
        prepare([str(mixed(seed)[0])], [], out, HALF)
        texts.append([(out / name).read_bytes() for name in names])
    assert texts[0] == texts[1]


def test_prepare_files_together_are_the_files_in_one(
    tmp_path: Path, mixed: Callable[[int], tuple[Path, list[Any]]], write_jsonl: Callable[..., Path]
) -> None:
    source, rows = mixed(3)
    parts = tmp_path / "parts"
    write_jsonl("parts/a.jsonl", rows[:40])
    write_jsonl("parts/b.jsonl", rows[40:])
    lenient = HALF.model_copy(update={"max_bad_rate": 0.05})
    one = prepare([str(source)], [], tmp_path / "one", lenient)
    several = prepare([str(parts)], [], tmp_path / "several", lenient)
    assert one.tally.removed == several.tally.removed
    for name in ("prompts.jsonl", "anchors.jsonl"):
        first, second = ((tmp_path / out / name).read_bytes() for out in ("one", "several"))
        assert first == second


def test_prepared_set_is_read_by_the_pipeline_and_its_record_holds(
    tmp_path: Path,
    write_jsonl: Callable[..., Path],
    nectar: Callable[..., Fields],
    read_lines: Callable[[Path], list[Fields]],
) -> None:
    rows = [nectar(number) for number in range(40)]
    talk = "Tell me how bread is made, and what the yeast in it does, please."
    rows.append(nectar(99, talk, "With flour.", "And then?"))
    source = write_jsonl("nectar.jsonl", rows)
    found = prepare([str(source)], [], tmp_path / "out", HALF)
    data = load_prepared(tmp_path / "out")
    assert set(data.anchors) == set(data.prompts["train"])
    assert len(data.all_prompts) == found.tally.num_kept == 41
    assert f"Human: {talk}\n\nAssistant: With flour.\n\nHuman: And then?" in set(
        data.all_prompts.values()
    )
    first = next(iter(data.anchors.values()))
    assert [text.split()[1] for text in first] == list("1234567")
    heldout = read_lines(tmp_path / "out" / "heldout_anchors.jsonl")
    assert {line["prompt_id"] for line in heldout} == set(data.prompts["heldout"])
    artefact = load_artefact(tmp_path / "out", expected_step="prepare_data")
    assert artefact.content_hash == found.content_hash
    assert "gpt-4" not in (tmp_path / "out" / "anchors.jsonl").read_text(encoding="utf-8")


def test_prepare_card_states_sources_counts_and_settings(
    tmp_path: Path, mixed: Callable[[int], tuple[Path, list[Any]]]
) -> None:
    source, _ = mixed(4)
    found = prepare([str(source)], [], tmp_path / "out", HALF)
    card = (tmp_path / "out" / "card.md").read_text(encoding="utf-8")
    kept = {split: held.rows for split, held in found.tally.kept.items()}
    longer = found.tally.kept["train"].longer
    for said in (
        f"{kept['train']} training prompts, {kept['heldout']} held out, of 107 rows read",
        f"settings {found.settings_hash[:16]}",
        "| CC0 | 99 |",
        "| filtered | few_responses | 1 |",
        "| repeated | contradictory | 2 |",
        "Not checked: no benchmark was named.",
        f"{longer.rate:.3f} of {longer.pairs}",
        '"min_responses": 7',
    ):
        assert said in card
    counts = json.loads((tmp_path / "out" / "counts.json").read_text(encoding="utf-8"))
    assert counts["kept"] == kept


def test_prepare_replaces_its_own_set_and_nothing_else(
    tmp_path: Path, mixed: Callable[[int], tuple[Path, list[Any]]]
) -> None:
    source, _ = mixed(5)
    first = prepare([str(source)], [], tmp_path / "out", HALF)
    second = prepare([str(source)], [], tmp_path / "out", HALF)
    assert first.content_hash == second.content_hash
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="something there that this command did not make"):
        prepare([str(source)], [], work, HALF)
    assert [path.name for path in work.iterdir()] == ["notes.txt"]


def test_prepare_that_fails_leaves_the_old_set_and_no_scratch(
    tmp_path: Path,
    mixed: Callable[[int], tuple[Path, list[Any]]],
    write_jsonl: Callable[..., Path],
    anchor: Callable[..., Fields],
) -> None:
    source, _ = mixed(6)
    prepare([str(source)], [], tmp_path / "out", HALF)
    before = sorted(path.name for path in tmp_path.iterdir())
    bad = write_jsonl("bad/rows.jsonl", [anchor(1), *["{"] * 9])
    with pytest.raises(UserError, match=r"9 unusable of 10 rows .*not JSON at line 2"):
        prepare([str(bad)], [], tmp_path / "out", HALF)
    short = write_jsonl("bad/short.jsonl", [anchor(n, prompt="Why?") for n in range(3)])
    with pytest.raises(UserError, match="no training row of 3"):
        prepare([str(short)], [], tmp_path / "out", HALF)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "bad"])
    load_artefact(tmp_path / "out")


@given(st.lists(st.text(max_size=30), min_size=1, max_size=20), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_split_depends_on_the_normalised_prompt_alone(prompts: list[str], seed: int) -> None:
    half = SplitSettings(heldout_share=0.5, seed=seed)
    split = {prompt: split_of_prompt(prompt, half) for prompt in prompts}
    for prompt in reversed(prompts):
        assert split_of_prompt(f"  {prompt} \n", half) == split[prompt]


def test_split_shares_are_what_was_asked_for_and_nest() -> None:
    def heldout(share: float) -> set[int]:
        asked = SplitSettings(heldout_share=share)
        return {n for n in range(4000) if split_of_prompt(f"prompt {n}", asked) == "heldout"}

    tenth, fifth = heldout(0.1), heldout(0.2)
    assert tenth < fifth
    assert 320 < len(tenth) < 480  # deterministic: 400 expected, 4 standard deviations are 76
    assert heldout(0.0) == set()
    assert len(heldout(1.0)) == 4000


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.permutations([0, 1, 2]), st.sampled_from(["abc", "abd"])),
        max_size=12,
    )
)
@settings(max_examples=40, deadline=None)
def test_store_agrees_with_a_comparison_of_all_rows_in_memory(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, list[int], str]]
) -> None:
    rows = [anchor_row(n, f"p{p}", order, texts) for n, (p, order, texts) in enumerate(drawn)]
    with RowStore(tmp_path_factory.mktemp("store") / "rows") as store:
        for row in rows:
            store.add(row)
        resolved = list(store.resolved())
    assert sum(one.removed.total() + (one.kept is not None) for one in resolved) == len(rows)
    assert len(resolved) == len({row.prompt for row in rows})
    for one in resolved:
        if one.kept is not None:
            others = [row for row in rows if row.prompt == one.kept.prompt]
            assert all(not _contradict(one.kept, other) for other in others)


def _contradict(one: AnchorRow, other: AnchorRow) -> bool:
    """Say it again, without hashes: some pair of texts stands in opposite orders."""
    both = set(one.responses) & set(other.responses)
    pairs = [(a, b) for a in both for b in both if a != b]
    first, second = one.responses.index, other.responses.index
    return any(first(a) < first(b) and second(a) > second(b) for a, b in pairs)


def test_contradictions_need_two_decided_orders_of_the_same_texts() -> None:
    rows = [anchor_row(1, "p", [0, 1, 2]), anchor_row(2, "p", [1, 0, 2])]
    assert contradictions(rows) == {0, 1}
    assert contradictions([rows[0], anchor_row(3, "p", [0, 1, 2], "xyz")]) == set()
    tied = AnchorRow("t", ("p",), ("b", "a", "c"), (2, 1), "f", "CC0")
    assert contradictions([rows[0], tied]) == set()


def test_prepare_memory_does_not_grow_with_rows(
    tmp_path: Path, write_jsonl: Callable[..., Path], anchor: Callable[..., Fields]
) -> None:
    """Peak of Python's and NumPy's memory; SQLite's own is bounded by its cache of 2 MB."""
    template = json.dumps(anchor(0)).replace("number 0", "number %d").replace("of 0", "of %d")

    def write(count: int) -> Path:
        path = tmp_path / f"rows{count}.jsonl"
        numbers = template.count("%d")
        with path.open("w", encoding="utf-8") as stream:
            stream.writelines(template % ((n,) * numbers) + "\n" for n in range(count))
        return path

    bench = write_jsonl("bench/one.jsonl", [anchor(5000)])

    def peak(count: int) -> int:
        source, out = write(count), tmp_path / f"out{count}"
        tracemalloc.start()
        try:
            found = prepare([str(source)], [str(bench)], out, DataSettings())
            top = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert found.tally.num_kept == count
        return top

    peak(600)  # caches of words and patterns, which are bounded, fill once
    small, large = peak(60), peak(600)
    kept_in_memory = 540 * len(template)
    assert large - small < kept_in_memory / 4, (small, large, kept_in_memory)


def test_filters_from_settings_decide(
    tmp_path: Path, write_jsonl: Callable[..., Path], anchor: Callable[..., Fields]
) -> None:
    source = write_jsonl("rows.jsonl", [anchor(n) for n in range(10)])
    strict = DataSettings(filters=FilterSettings(min_prompt_chars=500))
    with pytest.raises(UserError, match="short_prompt filtered: 10"):
        prepare([str(source)], [], tmp_path / "out", strict)
    assert not (tmp_path / "out").exists()


def test_public_anchors_are_prepared_with_the_benchmarks_left_out(
    shared_data: Path, tmp_path: Path
) -> None:
    source = shared_data / "anchors" / "tulu_bon.jsonl"
    bench = shared_data / "pairs" / "llmbar_processed.jsonl"
    found = prepare([str(source)], [str(bench)], tmp_path / "out", DataSettings())
    with bench.open(encoding="utf-8") as stream:
        benchmark = {json.loads(line)["prompt"] for line in stream}
    kept = set(load_prepared(tmp_path / "out").all_prompts.values())
    assert kept
    assert kept & benchmark == set()
    assert found.tally.num_read == 189
    assert found.tally.removed["contaminated"].total() > 0
