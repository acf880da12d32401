"""Files, folders and a data set in the hub's layout are read row by row; what is none is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from dynamicrubric.data.sources import Reading, open_sources
from dynamicrubric.errors import UserError

Fields = dict[str, Any]


def read(*names: object, max_bad_rate: float = 0.02) -> tuple[list[Any], list[Reading]]:
    rows, readings = [], []
    for source in open_sources([str(name) for name in names], "not stated"):
        readings.append(Reading(source.name))
        rows += source.anchor_rows(max_bad_rate, readings[-1])
    return rows, readings


def test_parquet_in_nectars_format_is_read_as_its_jsonl(
    tmp_path: Path, write_jsonl: Callable[..., Path], nectar: Callable[..., Fields]
) -> None:
    rows = [nectar(number) for number in range(150)]
    lines = write_jsonl("rows.jsonl", rows)
    write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    from_lines, _ = read(lines)
    from_table, _ = read(tmp_path / "rows.parquet")
    assert from_table == from_lines
    assert open_sources([str(tmp_path / "rows.parquet")], "x")[0].num_rows == 150


def test_folder_stands_for_its_data_files_in_order(
    write_jsonl: Callable[..., Path], anchor: Callable[..., Fields]
) -> None:
    write_jsonl("set/b/two.jsonl", [anchor(2)])
    write_jsonl("set/one.jsonl", [anchor(1)])
    folder = write_jsonl("set/notes.txt", ["no data"]).parent
    rows, readings = read(folder)
    assert [row.id for row in rows] == ["row-2", "row-1"]
    assert [Path(one.name).name for one in readings] == ["two.jsonl", "one.jsonl"]


def test_hub_data_set_is_streamed_from_a_folder_in_its_layout(
    tmp_path: Path, nectar: Callable[..., Fields]
) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "Nectar"
    (folder / "data").mkdir(parents=True)
    table = pa.Table.from_pylist([nectar(number) for number in range(5)])
    write_table(table, folder / "data" / "rlaif.parquet")
    card = "---\nlicense: apache-2.0\nconfigs:\n- config_name: default\n  data_files:\n"
    card += "  - split: train\n    path: data/rlaif.parquet\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    from_hub, _ = read(f"hub:{folder}")
    from_file, _ = read(folder)
    assert [row.responses for row in from_hub] == [row.responses for row in from_file]
    assert len(from_hub) == 5


def test_hub_data_set_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(UserError, match=r"streaming .* from the hub"):
        read(f"hub:{tmp_path}")
    with pytest.raises(UserError, match="reading the name"):
        read(f"hub:{tmp_path / 'absent'}")


def test_hub_nectar_brings_its_licence() -> None:
    source = open_sources(["hub:berkeley-nest/Nectar@4d713235"], "mine")[0]
    assert source.origin.license.startswith("Apache-2.0, on condition")
    assert open_sources(["hub:someone/else"], "mine")[0].origin.license == "mine"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no row"),
        (["{"], "not JSON at line 1"),
        (['"text"'], "unknown format: got a str"),
        (['{"text": "x"}'], "unknown format: got the fields text"),
        (["[" * 100_000], "not JSON at line 1"),
    ],
)
def test_source_that_is_none_is_a_sentence(
    write_jsonl: Callable[..., Path], lines: list[str], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        read(write_jsonl("rows.jsonl", lines))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent.jsonl", "no such file"),
        ("rows.csv", "a file that ends in .csv"),
        ("folder", "a folder without data files"),
        ("broken.parquet", "expected a Parquet table"),
    ],
)
def test_path_that_holds_no_data_is_a_sentence(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "rows.csv").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.parquet").write_text("no table", encoding="utf-8")
    with pytest.raises(UserError, match=said):
        read(tmp_path / name)


def test_bad_rows_are_counted_up_to_a_limit(
    tmp_path: Path, write_jsonl: Callable[..., Path], anchor: Callable[..., Fields]
) -> None:
    good = [json.dumps(anchor(number)) for number in range(7)]
    path = write_jsonl("rows.jsonl", [*good, "{", "\n", '{"prompt": "x"}'])
    with path.open("ab") as stream:
        stream.write(b'{"prompt": "\xff"}\n')
    rows, readings = read(path, max_bad_rate=0.3)
    assert len(rows) == 7
    assert readings[0].faults == {"not_json": 1, "no_responses": 1, "not_utf8": 1}
    assert (readings[0].rows, readings[0].bad) == (10, 3)
    with pytest.raises(UserError, match=r"3 unusable of 10 rows .*not JSON at line 8"):
        read(path, max_bad_rate=0.29)


def test_mostly_bad_source_is_given_up_early(write_jsonl: Callable[..., Path]) -> None:
    good = {"id": "1", "prompt": "p", "responses": ["a", "b"], "ranking": [0, 1]}
    path = write_jsonl("rows.jsonl", [good, *["{"] * 5000])
    with pytest.raises(UserError, match="unusable of 1000 rows"):
        read(path, max_bad_rate=0.9)


def test_awkward_rows_are_rows(shared_data: Path) -> None:
    rows, readings = read(shared_data / "awkward.jsonl")
    assert readings[0].bad == 0
    assert len(rows) == 14
