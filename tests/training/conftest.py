"""A tiny prepared world with warm starts, made once a test run, and how to train on it.

Real steps, real TRL; small numbers. Importing TRL takes ten seconds a process, so everything that
needs it is in this folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dynamicrubric import steps
from dynamicrubric.config import merge
from dynamicrubric.worlds.postcards import prepare as world_files
from dynamicrubric.worlds.prepared import load_prepared, read_jsonl
from tasks.ranks import run_in_ranks

NUM_PROMPTS = 4
"""Training prompts, and as many held-out ones."""
TEXTS_PER_PROMPT = 6
"""Few texts, learnt nearly by heart: so the generator's rubrics are valid after seconds."""
WORLD = {
    "name": "postcards", "seed": 3, "num_heldout_prompts": 120, "num_anchors": 5,
}  # fmt: skip
BACKBONE = {"hidden_size": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 1024}
WARM_START = {"steps": 120, "batch_size": 8, "learning_rate": 1e-2}
RECIPE: dict[str, Any] = {
    "seed": 1,
    "round": 1,
    "responses_per_set": 4,
    "rubrics": {
        "evaluator": "dynamic", "min_items": 1, "max_items": 2,
        "sampling": {"temperature": 1.0, "min_p": 0.0, "max_tokens": 16},
    },
    "verifier": {"error_rate": 0.0, "failure_rate": 0.0, "max_unscored_rate": 0.5},
    "generator_training": {
        "responses": "current", "objective": {"disc": 1.0, "anchor": 1.0}, "steps": 3,
        "prompts_per_step": 2, "group_size": 4, "learning_rate": 1e-3, "kl_beta": 0.05,
        "max_invalid_rate": 1.0,
    },
    "policy_training": {
        "steps": 3, "prompts_per_step": 2, "learning_rate": 1e-3, "kl_beta": 0.05,
        "max_invalid_rate": 1.0,
    },
    "policy_sampling": {"temperature": 1.0, "min_p": 0.0, "max_tokens": 24},
    "evaluation": {"sets_per_prompt": 2, "max_invalid_rate": 1.0},
    "versions": {},
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One training: where its artefact and its work folder are."""

    out: Path
    work: Path

    @property
    def rollouts(self) -> pd.DataFrame:
        """Lineage rows."""
        return pd.read_parquet(self.out / "rollouts.parquet")

    @property
    def log(self) -> list[dict[str, Any]]:
        """The training log."""
        return read_jsonl(self.out / "training_log.jsonl")

    @property
    def bytes(self) -> dict[str, bytes]:
        """Everything in the artefact, by name."""
        found = {p.name: p.read_bytes() for p in self.out.iterdir()}
        assert {"model.safetensors", "training_log.jsonl", "rollouts.parquet"} <= found.keys()
        return found


@dataclass(frozen=True)
class Tiny:
    """The tiny world's folders."""

    root: Path

    @property
    def prepared(self) -> Path:
        return self.root / "prepared"

    @property
    def policy(self) -> Path:
        return self.root / "policy"

    @property
    def generator(self) -> Path:
        return self.root / "generator"

    @property
    def responses(self) -> Path:
        return self.root / "responses"

    def recipe(self, **changed: Any) -> dict[str, Any]:
        """Return the tiny recipe with changes laid over it."""
        return merge(RECIPE, changed)

    def keep_rubrics(self, where: Path) -> Path:
        """Write a static evaluator's rubrics by hand: an invalid one for the first prompt."""
        where.mkdir()
        valid = (
            '[{"criterion":"says thank you","weight":2},{"criterion":"gives a number","weight":1}]'
        )
        prompts = load_prepared(self.prepared).all_prompts
        rows = [
            {"prompt_id": key, "text": valid if place else "[", "finish_reason": "stop"}
            for place, key in enumerate(prompts)
        ]
        write_rows(where / "rubrics.jsonl", rows)
        return where

    def train_policy(
        self,
        where: Path,
        *,
        every: int = 10,
        generator: Path | None = None,
        processes: int = 1,
        rows_per_pass: int = 0,
        **changed: Any,
    ) -> Run:
        """Run the policy's step in `where`; run again there, it resumes."""
        run = started(where)
        run_step(
            "train_policy",
            processes,
            recipe=self.recipe(**changed),
            cell_hash="0123abcd",
            policy_dir=str(self.policy),
            generator_dir=str(generator or self.generator),
            prepared_dir=str(self.prepared),
            out_dir=str(run.out),
            work_dir=str(run.work),
            checkpoint_every_steps=every,
            rows_per_pass=rows_per_pass,
        )
        return run

    def train_generator(
        self, where: Path, *, every: int = 10, processes: int = 1, **changed: Any
    ) -> Run:
        """Run the generator's step in `where`; run again there, it resumes."""
        run = started(where)
        run_step(
            "train_generator",
            processes,
            recipe=self.recipe(**changed),
            generator_dir=str(self.generator),
            responses_dir=str(self.responses),
            prepared_dir=str(self.prepared),
            out_dir=str(run.out),
            work_dir=str(run.work),
            checkpoint_every_steps=every,
        )
        return run


def run_step(name: str, processes: int, **arguments: Any) -> None:
    """Run a step here, or in several processes."""
    if processes == 1:
        getattr(steps, name)(**arguments)
    else:
        run_in_ranks(f"dynamicrubric.steps:{name}", arguments, processes)


def started(where: Path) -> Run:
    """Return a run whose out is empty and whose work folder is as it was: what a launcher does."""
    run = Run(where / "out", where / "work")
    shutil.rmtree(run.out, ignore_errors=True)
    run.out.mkdir(parents=True)
    run.work.mkdir(exist_ok=True)
    return run


def cut_down(source: Path, target: Path) -> None:
    """Keep a few prompts and texts of a prepared world."""
    target.mkdir()
    shutil.copytree(source / "tokenizer", target / "tokenizer")
    kept: list[dict[str, Any]] = []
    for split in ("train", "heldout"):
        rows = [row for row in read_jsonl(source / "prompts.jsonl") if row["split"] == split]
        kept += rows[:NUM_PROMPTS]
    write_rows(target / "prompts.jsonl", kept)
    ids, texts = {row["id"] for row in kept}, [row["text"] for row in kept]
    anchors = [row for row in read_jsonl(source / "anchors.jsonl") if row["prompt_id"] in ids]
    write_rows(target / "anchors.jsonl", anchors)
    for name in ("sft_policy.jsonl", "sft_generator.jsonl"):
        by_prompt = defaultdict(list)
        for row in read_jsonl(source / name):
            by_prompt[row["prompt"]].append(row)
        write_rows(
            target / name, [row for text in texts for row in by_prompt[text][:TEXTS_PER_PROMPT]]
        )


def write_rows(path: Path, rows: list[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_world(root: Path) -> None:
    """Prepare, cut down, warm-start both roles and sample the response sets."""
    (root / "whole").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world_files, "POSTCARDS_PER_PROMPT", TEXTS_PER_PROMPT)
        patch.setattr(world_files, "RUBRICS_PER_PROMPT", TEXTS_PER_PROMPT)
        steps.prepare(
            world=WORLD,
            vocab_size=BACKBONE["vocab_size"],
            responses_per_set=RECIPE["responses_per_set"],
            min_rubric_items=RECIPE["rubrics"]["min_items"],
            max_rubric_items=RECIPE["rubrics"]["max_items"],
            out_dir=str(root / "whole"),
        )
    cut_down(root / "whole", root / "prepared")
    for role in ("policy", "generator"):
        (root / role).mkdir()
        steps.warm_start(
            role=role,
            prepared_dir=str(root / "prepared"),
            backbone=BACKBONE,
            settings=WARM_START,
            seed=1,
            out_dir=str(root / role),
            work_dir=str(root / f"work-{role}"),
        )
    (root / "responses").mkdir()
    steps.sample_responses(
        recipe=RECIPE,
        policy_dir=str(root / "policy"),
        prepared_dir=str(root / "prepared"),
        out_dir=str(root / "responses"),
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file lock: pytest-xdist's processes share one world."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The tiny world; made by whichever test process needs it first."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of this run alone: its number is in the name
    root = base / "tiny-world"
    with locked(base / "tiny-world.lock"):
        if not root.exists():
            building = base / "tiny-world.building"
            building.mkdir()
            try:
                make_world(building)
                building.rename(root)
            finally:  # what is left of a failure would hide it from the next process
                shutil.rmtree(building, ignore_errors=True)
    return Tiny(root)
