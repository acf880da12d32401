"""Endpoints: who answers, who does not, and how long that takes to say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from dynamicrubric.config import Config, load_config, merge, resolve_arm
from dynamicrubric.preflight.facts import Check
from dynamicrubric.preflight.lengths import longest_texts
from dynamicrubric.preflight.reach import reach_checks, why_unreachable
from dynamicrubric.preflight.roles import Arm
from dynamicrubric.yamlio import load_yaml
from flows.services import reserved_port

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server() -> Iterator[str]:
    """An address under which /v1/models wants a key and /down is a gateway's failure."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response({"/v1/models": 401, "/down/models": 503}.get(self.path, 200))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    web = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{web.server_port}"
    web.shutdown()
    web.server_close()


def profile(name: str, **changes: Any) -> Config:
    return Config.model_validate(merge(load_yaml(ROOT / "profiles" / f"{name}.yaml"), changes))


def reached(config: Config, root: Path = ROOT) -> tuple[list[Check], bool]:
    recipes = {run.arm: resolve_arm(config, run.arm) for run in config.study.runs}
    arms = {arm: Arm(recipe, longest_texts(config, recipe)) for arm, recipe in recipes.items()}
    return reach_checks(config, arms, root)


def judged(*addresses: str) -> Config:
    """Return smollm2 with an arm for each address, whose verifier is there."""
    names = ("coevolved", "stale")[: len(addresses)]
    arms = {arm: {"verifier": {"engine": {"kind": "openai", "model": arm}}} for arm in names}
    places = {
        arm: {"base_url": address, "key_variable": "REACH_TEST_KEY"}
        for arm, address in zip(names, addresses, strict=True)
    }
    return profile("smollm2", study={"arms": arms}, runtime={"endpoints": places})


def test_endpoint_that_wants_a_key_answers(server: str) -> None:
    checks, _ = reached(judged(f"{server}/v1"))
    assert [(one.area, one.level) for one in checks] == [("endpoints", "ok")]


def test_endpoint_that_is_down_is_a_problem_with_its_reason(server: str) -> None:
    checks, _ = reached(judged(f"{server}/down"))
    assert [one.level for one in checks] == ["problem"]
    assert "503" in checks[0].found
    assert "no http" in (why_unreachable("file:///etc/passwd") or "")


def test_endpoint_is_asked_once_and_only_if_an_arm_that_is_run_names_it(server: str) -> None:
    config = judged(f"{server}/v1", f"{server}/v1")
    assert len(reached(config)[0]) == 1
    document = merge(config.model_dump(mode="json"), {"study": {"run": ["frozen"]}})
    assert reached(Config.model_validate(document)) == ([], False)


def test_endpoint_where_nobody_listens_cannot_be_reached() -> None:
    with reserved_port() as port:
        assert "refused" in (why_unreachable(f"http://127.0.0.1:{port}/v1/models") or "")


def test_hub_is_not_asked_for_what_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # nothing listens there
    assert reached(load_config(ROOT / "profiles" / "smollm2.yaml")) == ([], False)


def test_hub_is_asked_where_the_environment_says(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", server)
    config = load_config(ROOT / "profiles" / "qwen3-8b.yaml")
    checks, answers = reached(config)
    assert answers
    assert "Qwen/Qwen3-8B" in checks[0].found
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checks, answers = reached(config)
    assert not answers
    assert "HF_HUB_OFFLINE" in checks[0].found


def fill_cache(folder: Path, repository: str, files: list[str]) -> None:
    """Lay out the hub's cache of a repository's branch main."""
    home = folder / f"models--{repository.replace('/', '--')}"
    snapshot = home / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("a" * 40)
    for name in files:
        (snapshot / name).write_text("{}")


@pytest.mark.parametrize(
    ("files", "level"),
    [
        ([], "problem"),
        (["config.json"], "problem"),  # an earlier preflight asked for it
        (["config.json", "model.safetensors"], "note"),
    ],
)
def test_base_in_the_hubs_cache_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], level: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    fill_cache(tmp_path, "me/model", files)
    checks, answers = reached(profile("smollm2", backbone={"checkpoint": "me/model"}))
    assert [one.level for one in checks] == [level]
    assert not answers


def test_shards_that_are_not_all_in_the_cache_are_no_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    fill_cache(tmp_path, "me/model", ["config.json", "one.safetensors"])
    snapshot = tmp_path / "models--me--model" / "snapshots" / ("a" * 40)
    index = snapshot / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    config = profile("smollm2", backbone={"checkpoint": "hub:me/model@main"})
    assert [one.level for one in reached(config)[0]] == ["problem"]
    (snapshot / "two.safetensors").write_text("")
    assert [one.level for one in reached(config)[0]] == ["note"]


def test_study_whose_data_are_prepared_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = profile("qwen3-8b")
    recipe = config.recipe
    identity = {
        "world": config.world.model_dump(mode="json"),
        "backbone": config.backbone.model_dump(mode="json"),
        "responses_per_set": recipe.responses_per_set,
        "min_rubric_items": recipe.min_rubric_items,
        "max_rubric_items": recipe.max_rubric_items,
        "sources": [],
    }
    folder = tmp_path / "data" / "prepared"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps({"step": "prepare", "identity": identity}))
    checks, _ = reached(config, tmp_path)
    assert [one.level for one in checks] == ["note"]
    assert "data/prepared is finished" in checks[0].found
    other = profile("qwen3-8b", world={"num_heldout_prompts": 8})  # another study's data
    assert [one.level for one in reached(other, tmp_path)[0]] == ["problem"]


def test_name_that_the_hub_cannot_have_is_a_problem() -> None:
    checks, answers = reached(profile("smollm2", world={"anchors": ["hub:Nectar"]}))
    assert [one.level for one in checks] == ["problem"]
    assert "owner/name" in checks[0].found
    assert not answers
