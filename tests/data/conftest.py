"""Small files in the formats that are read, and the public data where they are at hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the public data are not here: ../shared/data")
    return SHARED


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, rows: Iterable[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as stream:
            for row in rows:
                stream.write((row if isinstance(row, str) else json.dumps(row)) + "\n")
        return path

    return write


@pytest.fixture
def anchor() -> Callable[..., dict[str, Any]]:
    """Return a function that makes a row that every filter keeps; fields may be replaced."""

    def make(number: int, **fields: Any) -> dict[str, Any]:
        return {**anchor_fields(number), **fields}

    return make


def anchor_fields(number: int) -> dict[str, Any]:
    responses = [
        f"Answer {place} of {number}: a paragraph that says{' so' * place} thing {number} in full."
        for place in range(7)
    ]
    return {
        "id": f"row-{number}",
        "prompt": f"Please write a paragraph about subject number {number}, in your own words.",
        "responses": responses,
        "ranking": [3, 1, 2, 0, 4, 6, 5],
        "models": ["secret"] * 7,
        "scores": [1, 2, 3, 4, 5, 6, 7],
        "source": "made up",
        "license": "CC0",
    }


@pytest.fixture
def nectar() -> Callable[..., dict[str, Any]]:
    """Return a function that makes a row in Nectar's own format."""

    def make(number: int, *turns: str, ranks: Iterable[float] = range(1, 8)) -> dict[str, Any]:
        said = turns or (f"Please write a paragraph about subject number {number}, if you can.",)
        speakers = ("Human", "Assistant")
        prompt = "".join(f"\n\n{speakers[n % 2]}: {text}" for n, text in enumerate(said))
        text = "Paragraph {} on {}, which is quite long enough to be called one."
        answers = [
            {"answer": text.format(rank, number), "model": "gpt-4", "rank": float(rank)}
            for rank in ranks
        ]
        return {
            "prompt": prompt + "\n\nAssistant: ",
            "answers": answers,
            "turns": (len(said) + 1) // 2,
            "num_responses": len(answers),
            "source": ["sharegpt"],
            "good_natured": True,
        }

    return make


@pytest.fixture
def read_lines() -> Callable[[Path], list[Mapping[str, Any]]]:
    def read(path: Path) -> list[Mapping[str, Any]]:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    return read
