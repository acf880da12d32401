"""What was pushed is loaded again: from the hub, its cache without a network, or a folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fakehub import TOKEN, FakeHub, fake_hub
from project import command, publish, python
from transformers import LlamaConfig, LlamaForCausalLM

from dynamicrubric import steps
from dynamicrubric.config import LanguageConfig, PretrainedConfig
from dynamicrubric.engines.checkpoints import write_base
from dynamicrubric.engines.models import save_checkpoint
from dynamicrubric.engines.tokenizer import FrameTokenizer, train_tokenizer
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.errors import UserError
from dynamicrubric.worlds.language.sources import fingerprints

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from languageworld import LORA, WORLD, write_anchors

LOAD = (
    "import json, sys; from pathlib import Path; "
    "from dynamicrubric.engines.checkpoints import write_base; "
    "print(json.dumps(write_base(sys.argv[1], Path(sys.argv[2]))))"
)
"""What preparing the data does with `backbone.checkpoint`."""


@dataclass(frozen=True)
class Shared:
    """A policy that was trained, pushed, and loaded again.

    Attributes:
        hub: where it was pushed to.
        trained: its artefact.
        loaded: the folder that it was loaded into.
        facts: what loading said of it.
        home: where the hub's cache is.
    """

    hub: FakeHub
    trained: Path
    loaded: Path
    facts: dict[str, str]
    home: Path

    @property
    def cache(self) -> Path:
        """The hub's cache of the repository."""
        return self.home / "hub/models--me--policy"


def tiny_policy(dirs: Any) -> None:
    """Write a whole small model with a tokenizer of the embedded world's frames."""
    torch.manual_seed(5)
    tokenizer = FrameTokenizer(train_tokenizer(["Greetings from Rome, the sun shines!"] * 4, 300))
    config = LlamaConfig(
        vocab_size=len(tokenizer.hf), hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=2, tie_word_embeddings=True, dtype="float32",
    )  # fmt: skip
    save_checkpoint(LlamaForCausalLM(config), tokenizer, dirs.out)
    (dirs.out / "optimizer.pt").write_bytes(b"\x80\x05pickled")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Push a small policy and load it again, each in a process of its own."""
    root = tmp_path_factory.mktemp("shared")
    trained = publish(root, "data/warm/policy", "warm_start", {"role": "policy"}, tiny_policy)
    home = root / "home"
    with fake_hub() as hub:
        done = command(
            "hub", "push", "policy", "data/warm/policy", "--repo", "me/policy", "--license", "mit",
            cwd=root, url=hub.url, HF_TOKEN=TOKEN,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        loaded = python(
            "-c", LOAD, "hub:me/policy@main", root / "loaded",
            cwd=root, url=hub.url, HF_TOKEN=TOKEN, HF_HOME=str(home),
        )  # fmt: skip
        assert loaded.returncode == 0, loaded.stderr
        yield Shared(hub, trained, root / "loaded", json.loads(loaded.stdout), home)


def test_pushed_policy_loads_to_equal_weights_and_first_token_logits(shared: Shared) -> None:
    before, after = (TransformersEngine.load(path) for path in (shared.trained, shared.loaded))
    own, its = before.model.state_dict(), after.model.state_dict()
    assert own.keys() == its.keys()
    assert all(torch.equal(own[name], its[name]) for name in own)
    prompts = [engine.tokenizer.policy_prompt("From Rome to Ann") for engine in (before, after)]
    assert prompts[0] == prompts[1]
    with torch.no_grad():
        logits = [
            engine.model(torch.tensor([prompts[0]])).logits[0, -1] for engine in (before, after)
        ]
    assert torch.equal(logits[0], logits[1])


def test_revision_is_pinned_to_its_commit_and_recorded(shared: Shared) -> None:
    head = shared.hub.model("me/policy").head
    assert shared.facts == {"repository": "me/policy", "revision": head, "license": "mit"}
    assert len(head) == 40
    assert not (shared.loaded / "README.md").exists()


def test_cache_will_do_without_a_network(shared: Shared, tmp_path: Path) -> None:
    done = python(
        "-c", LOAD, "me/policy@main", tmp_path / "again",
        cwd=tmp_path, url="http://127.0.0.1:9", HF_HUB_OFFLINE="1", HF_HOME=str(shared.home),
    )  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)) == (0, shared.facts)
    again = (tmp_path / "again/model.safetensors").read_bytes()
    assert again == (shared.trained / "model.safetensors").read_bytes()


def test_folder_in_the_hubs_layout_is_loaded_and_says_its_commit(
    shared: Shared, tmp_path: Path
) -> None:
    commit = shared.facts["revision"]
    for name in (f"hub:{shared.cache}", f"hub:{shared.cache}@{commit}"):
        target = tmp_path / name[-5:]
        assert write_base(name, target) == {"revision": commit, "license": "mit"}
        assert {path.name for path in target.iterdir()} == {
            path.name for path in shared.loaded.iterdir()
        }
    with pytest.raises(UserError, match="no snapshot of v9"):
        write_base(f"hub:{shared.cache}@v9", tmp_path / "absent")


@pytest.mark.parametrize(
    ("name", "said"),
    [("hub:me/policy@v9", "no such revision"), ("hub:me/absent", "no such repository")],
)
def test_what_the_hub_does_not_have_is_one_sentence(
    shared: Shared, tmp_path: Path, name: str, said: str
) -> None:
    code = (
        "import sys; from dynamicrubric.boundary import run_with_boundary; "
        "from dynamicrubric.hub.fetch import fetch; from dynamicrubric.hub.names import *; "
        "sys.exit(run_with_boundary(lambda: fetch(parse_hub_name(sys.argv[1]), ['*.json'])))"
    )
    done = python(
        "-c", code, name, cwd=tmp_path, url=shared.hub.url, HF_TOKEN=TOKEN, HF_HOME=str(tmp_path)
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: getting {name} from the hub: got {said}")
    assert TOKEN not in done.stderr


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"config.json": "{}", "pytorch_model.bin": "pickle"}, "no weights as safetensors"),
        ({"config.json": '{"auto_map": {}}', "model.safetensors": ""}, "classes of its own"),
        ({"adapter_config.json": "{}", "adapter_model.safetensors": ""}, "no config.json"),
    ],
)
def test_checkpoint_that_could_run_code_or_is_no_model_is_refused(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(UserError, match=said):
        write_base(f"hub:{folder}", tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_prepared_data_keep_the_commit_of_a_base_from_the_hub(
    shared: Shared, tmp_path: Path
) -> None:
    write_anchors(tmp_path / "anchors.jsonl")
    world = {**WORLD, "anchors": [str(tmp_path / "anchors.jsonl")]}
    backbone = {"checkpoint": f"hub:{shared.cache}", "dtype": "float32", "lora": LORA}
    (tmp_path / "out").mkdir()
    steps.prepare(
        world=world, backbone=backbone, responses_per_set=4, min_rubric_items=1,
        max_rubric_items=3, out_dir=str(tmp_path / "out"),
        sources=fingerprints(
            LanguageConfig.model_validate(world), PretrainedConfig.model_validate(backbone)
        ),
    )  # fmt: skip
    facts = json.loads((tmp_path / "out/world.json").read_text())
    assert facts["revision"] == shared.facts["revision"]
    assert (tmp_path / "out/base/model.safetensors").is_file()


def test_plan_knows_a_base_on_the_hub_by_its_name_and_asks_nobody(tmp_path: Path) -> None:
    write_anchors(tmp_path / "anchors.jsonl")
    world = LanguageConfig.model_validate({**WORLD, "anchors": [str(tmp_path / "anchors.jsonl")]})
    for checkpoint in ("big/base@v1", "hub:big/base@v1"):
        backbone = PretrainedConfig.model_validate(
            {"checkpoint": checkpoint, "dtype": "float32", "lora": LORA}
        )
        found = {one["name"]: one["content"] for one in fingerprints(world, backbone)}
        assert found[checkpoint] == "hub:big/base@v1"
