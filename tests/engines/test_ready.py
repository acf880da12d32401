"""What the engines of a study need is looked for before anything is trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.cells import CellRecipe
from dynamicrubric.config import parse_config
from dynamicrubric.engines.ready import check_ready
from dynamicrubric.engines.vllm_process import VllmConfig, child_environment
from dynamicrubric.enginesettings import OpenAIVerifier, Vllm
from dynamicrubric.errors import UserError
from dynamicrubric.plan import expand
from dynamicrubric.runtime import RuntimeConfig

PLACE = {"base_url": "https://models.example/v1", "key_variable": "READY_TEST_KEY"}


@pytest.fixture
def recipe(params_text: str) -> CellRecipe:
    plan = expand(parse_config(params_text, "params.yaml"))
    return next(iter(plan.cells.values())).recipe


def runtime(**changed: Any) -> RuntimeConfig:
    values = {"slots": 1, "threads_per_task": 1, "task_deadline_minutes": 1.0}
    return RuntimeConfig.model_validate({**values, "checkpoint_every_steps": 1, **changed})


def test_study_in_its_own_process_needs_nothing(recipe: CellRecipe) -> None:
    check_ready([recipe], runtime(vllm={"python": "no/such/python"}))


def test_missing_environment_of_vllm_is_said_before_anything_starts(recipe: CellRecipe) -> None:
    sampled = recipe.model_copy(update={"policy_engine": Vllm(kind="vllm")})
    with pytest.raises(UserError, match=r"'no/such/python'.*make vllm.*runtime\.vllm\.python"):
        check_ready([recipe, sampled], runtime(vllm={"python": "no/such/python"}))
    check_ready([sampled], runtime(vllm={"python": sys.executable}))


def test_missing_key_is_named_by_its_variable(
    recipe: CellRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai", reason="the optional extra `openai` is not installed")
    engine = OpenAIVerifier(kind="openai", model="judge-1")
    verifier = recipe.verifier.model_copy(update={"engine": engine})
    judged = recipe.model_copy(update={"verifier": verifier})
    monkeypatch.delenv("READY_TEST_KEY", raising=False)
    with pytest.raises(UserError, match="Export READY_TEST_KEY"):
        check_ready([judged], runtime(endpoints={"judge-1": PLACE}))
    monkeypatch.setenv("READY_TEST_KEY", "sk-1")
    check_ready([judged], runtime(endpoints={"judge-1": PLACE}))


@pytest.mark.parametrize(
    ("rank", "devices", "expected"),
    [("1", "3,5", "5"), (None, "3,5", "3,5"), ("0", "", ""), ("1", "GPU-a,GPU-b", "GPU-b")],
)
def test_child_of_one_of_several_processes_has_that_one_s_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: str | None, devices: str, expected: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    monkeypatch.setenv("MASTER_PORT", "1234")
    if rank is None:
        monkeypatch.delenv("LOCAL_RANK", raising=False)
    else:
        monkeypatch.setenv("LOCAL_RANK", rank)
    found = child_environment(VllmConfig())
    assert found["CUDA_VISIBLE_DEVICES"] == expected
    assert not {"LOCAL_RANK", "MASTER_PORT"} & found.keys()
