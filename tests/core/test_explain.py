"""`dynamicrubric explain` from outside: the numbers add up, or it says which one does not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dynamicrubric.cli import main
from dynamicrubric.worlds.postcards.criteria import true_quality
from dynamicrubric.worlds.postcards.prompts import prompt_by_id

ROOT = Path(__file__).resolve().parents[2]
CELL = "coevolved-s1-r1"
RUBRIC = (
    '[{"criterion":"says thank you","weight":3},{"criterion":"gives a [red]number","weight":1}]'
)
RUBRICS = {"evaluator": "dynamic", "min_items": 1, "max_items": 3}
# Rewards 1 and 3/4: mean 7/8, standard deviation sqrt(1/32).
ADVANTAGE = 0.125 / (0.03125**0.5 + 1e-4)


def name_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def response(number: int, text: str, verdicts: list[str], score: float | None) -> dict[str, Any]:
    reason = None if score is not None else "refusal"
    return {
        "cell_hash": "c", "step": 1, "prompt_id": "oslo", "sample_index": number, "text": text,
        "text_hash": name_of(text), "rubric_id": name_of(RUBRIC), "rubric": RUBRIC,
        "verdicts": verdicts, "score": score, "score_reason": reason, "reward": score,
        "advantage": {1.0: ADVANTAGE, 0.75: -ADVANTAGE, None: 0.0}[score],
    }  # fmt: skip


def responses() -> list[dict[str, Any]]:
    return [
        response(0, "thank you 7", ["yes", "yes"], 1.0),
        response(1, "thank you \x1b[31m[bold]", ["yes", "no"], 0.75),
        response(2, "hm", ["yes", "refusal"], None),
    ]


def rubrics() -> list[dict[str, Any]]:
    """R_disc .2 and .1: +-.05 over sqrt(.005) + 1e-4; R_anchor the other way round; lambda 2."""
    disc, anchor = 0.05 / (0.005**0.5 + 1e-4), 0.5 / (0.5**0.5 + 1e-4)
    rows = [("thanks", 0.2, -3.0, disc, -anchor), ("number", 0.1, -2.0, -disc, anchor)]
    return [
        {"step": 1, "row": "oslo/0", "prompt_id": "oslo",
         "text": f'[{{"criterion":"{word}","weight":2}}]', "finish_reason": "stop",
         "num_tokens": 4, "invalid_reason": None, "num_items": 1, "r_disc": r_disc,
         "r_anchor": r_anchor, "advantage_disc": a_disc, "advantage_anchor": a_anchor,
         "advantage": a_disc + 2 * a_anchor}
        for word, r_disc, r_anchor, a_disc, a_anchor in rows
    ]  # fmt: skip


def write(root: Path, role: str, rows: list[dict[str, Any]], identity: dict[str, Any]) -> None:
    """Write a role's artefact with its record, as training publishes it."""
    folder = root / "data" / "runs" / CELL / role
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "rollouts.parquet")
    (folder / "model.safetensors").write_bytes(role.encode())
    files = {
        path.name: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in folder.glob("[mr]o*")
    }
    record = {
        "step": f"train_{role}", "content_hash": f"hash of the {role}", "files": files,
        "identity": identity, "inputs": {"generator": "hash of the generator"},
    }  # fmt: skip
    (folder / "record.json").write_text(json.dumps(record))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    objective = {"disc": 1.0, "anchor": 2.0}
    training = {"group_size": 2, "objective": objective}
    write(tmp_path, "generator", rubrics(), {"rubrics": RUBRICS, "training": training})
    write(tmp_path, "policy", responses(), {"rubrics": RUBRICS, "responses_per_set": 3})
    (tmp_path / "data/runs/coevolved-s1-r0").mkdir()
    (tmp_path / "dvc.lock").write_text(
        f"schema: '2.0'\nstages:\n  round@{CELL}0:\n    outs: [\n  broken\n  round@{CELL}:\n"
        f"    outs:\n    - path: data/runs/{CELL}/policy\n      md5: abc.dir\n  compare:\n"
    )
    return tmp_path


class Explain:
    """The command, run in the study's folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._capsys = capsys

    def __call__(self, study: Path, *arguments: str, code: int = 0) -> str:
        """Return what it says: on stdout, or on stderr if it is to fail."""
        self._patch.chdir(study)
        self._patch.setattr(sys, "argv", ["dynamicrubric", "explain", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self._capsys.readouterr()
        assert (ended.value.code or 0) == code, said.err
        return said.err if code else said.out


@pytest.fixture
def explain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Explain:
    return Explain(monkeypatch, capsys)


def rewrite(study: Path, change: Callable[[dict[str, Any]], None], number: int = 1) -> None:
    """Publish the policy with one row of its lineage changed."""
    rows = responses()
    change(rows[number])
    write(study, "policy", rows, {"rubrics": RUBRICS, "responses_per_set": 3})


def test_explain_response_goes_from_the_sentence_to_the_checkpoint(
    study: Path, explain: Explain
) -> None:
    found = json.loads(explain(study, CELL, "1/oslo/1", "--json"))
    assert [(i["criterion"], i["weight"], i["verdict"], i["share"]) for i in found["items"]] == [
        ("says thank you", 3, "yes", 0.75),
        ("gives a [red]number", 1, "no", 0.0),
    ]
    assert (found["score"], found["reward"], found["mean"]) == (0.75, 0.75, 0.875)
    assert found["advantage"] == pytest.approx(-ADVANTAGE)
    assert [one["reward"] for one in found["group"]] == [1.0, 0.75, None]
    assert found["checkpoint"] == {
        "role": "policy",
        "file": f"data/runs/{CELL}/policy/model.safetensors",
        "sha256": hashlib.sha256(b"policy").hexdigest(),
        "content_hash": "hash of the policy",
        "dvc_hash": "abc.dir",
    }


@pytest.mark.parametrize("arguments", [("1/oslo/1",), ("1/oslo/0/1", "--generator")])
def test_explain_knows_the_checkpoint_of_an_adapter(
    study: Path, explain: Explain, arguments: tuple[str, ...]
) -> None:
    role = "generator" if "--generator" in arguments else "policy"
    folder = study / "data" / "runs" / CELL / role
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    record = json.loads((folder / "record.json").read_text())
    record["files"]["adapter_model.safetensors"] = record["files"].pop("model.safetensors")
    (folder / "record.json").write_text(json.dumps(record))
    found = json.loads(explain(study, CELL, *arguments, "--json"))["checkpoint"]
    assert found["file"] == f"data/runs/{CELL}/{role}/adapter_model.safetensors"
    assert found["sha256"] == hashlib.sha256(role.encode()).hexdigest()


def test_explain_text_shows_what_a_model_wrote_and_obeys_none_of_it(
    study: Path, explain: Explain
) -> None:
    text = explain(study, CELL, "1/oslo/1")
    assert "score = (3) / (3 + 1) = 0.7500" in text
    assert "gives a [red]number" in text
    assert "thank you <U+001B>[31m[bold]" in text
    assert "\x1b" not in text


def test_explain_response_is_found_by_the_hash_of_its_text(study: Path, explain: Explain) -> None:
    assert json.loads(explain(study, CELL, name_of("hm"), "--json"))["id"] == "1/oslo/2"


def test_explain_response_cut_at_its_limit_says_why_it_earned_nothing(
    study: Path, explain: Explain
) -> None:
    rows = responses()
    advantage = 0.5 / (0.5**0.5 + 1e-4)
    rows[0] |= {"advantage": advantage}
    rows[1] |= {"reward": 0.0, "advantage": -advantage}
    write(study, "policy", rows, {"rubrics": RUBRICS, "responses_per_set": 3})
    assert "cut at its token limit, so the reward is 0.0000" in explain(study, CELL, "1/oslo/1")


def test_explain_rubric_adds_both_advantages_with_their_weights(
    study: Path, explain: Explain
) -> None:
    found = json.loads(explain(study, CELL, "1/oslo/0/1", "--generator", "--json"))
    disc, anchor = found["advantage_disc"], found["advantage_anchor"]
    assert (found["r_disc"], found["r_anchor"], found["weights"]) == (0.1, -2.0, [1.0, 2.0])
    assert found["advantage"] == pytest.approx(disc + 2 * anchor)
    assert disc < 0.0 < anchor
    assert "2 x +0.7070" in explain(study, CELL, "1/oslo/0/1", "--generator")


def test_explain_without_an_id_lists_the_responses(study: Path, explain: Explain) -> None:
    text = explain(study, CELL)
    assert [name for name in ("1/oslo/0", "1/oslo/1", "1/oslo/2") if name not in text] == []
    assert "1/oslo/1  0.7500  0.7500  -0.7067" in text
    assert "3 of 3 responses" in text
    assert "1 of 3 responses" in explain(study, CELL, "--limit", "1")
    assert "expected a step from 1 to 1" in explain(study, CELL, "--step", "9", code=2)


def test_explain_of_an_arm_without_weights_counts_every_item_as_one(
    study: Path, explain: Explain
) -> None:
    rows = responses()
    # The text's weights are 3 and 1; without them "yes, no" is 1/2, and 1 and 1/2 lie +-1/4 apart.
    advantage = 0.25 / (0.125**0.5 + 1e-4)
    rows[0] |= {"advantage": advantage}
    rows[1] |= {"score": 0.5, "reward": 0.5, "advantage": -advantage}
    write(study, "policy", rows, {"rubrics": {**RUBRICS, "weights": "equal"},
                                  "responses_per_set": 3})  # fmt: skip
    found = json.loads(explain(study, CELL, "1/oslo/1", "--json"))
    assert [(item["weight"], item["share"]) for item in found["items"]] == [(1, 0.5), (1, 0.0)]
    assert found["counts_alike"] is True
    text = explain(study, CELL, "1/oslo/1")
    assert "score = (1) / (1 + 1) = 0.5000" in text
    assert "every item counts one" in text


def test_explain_rubric_of_an_arm_without_weights_shows_the_weights_that_count(
    study: Path, explain: Explain
) -> None:
    training = {"group_size": 2, "objective": {"disc": 1.0, "anchor": 2.0}}
    rubric_settings = {**RUBRICS, "weights": "equal"}
    write(study, "generator", rubrics(), {"rubrics": rubric_settings, "training": training})
    found = json.loads(explain(study, CELL, "1/oslo/0/1", "--generator", "--json"))
    assert found["criteria"] == [["number", 1]]
    assert "every item counts one" in explain(study, CELL, "1/oslo/0/1", "--generator")


def test_explain_of_hand_written_rules_names_no_generator(study: Path, explain: Explain) -> None:
    settings = {**RUBRICS, "evaluator": "rule_based"}
    write(study, "policy", responses(), {"rubrics": settings, "responses_per_set": 3})
    (study / "data/runs" / CELL / "generator/record.json").unlink()
    found = json.loads(explain(study, CELL, "1/oslo/1", "--json"))
    assert (found["judge"], found["score"], found["evaluator"]) == (None, 0.75, "rule_based")
    assert "no generator: a fixed rubric" in explain(study, CELL, "1/oslo/1")


PROMPT = "lima-emma-holiday"
CARDS = ("Hello Emma! Thank you. See you soon.", "Hm", "Thank you, thank you, thank")
"""The last was cut at its limit."""


def oracle_rows() -> list[dict[str, Any]]:
    """Rows of an oracle: the cut one is worth -1, whatever its text is."""
    rewards = [true_quality(prompt_by_id(PROMPT), text) for text in CARDS[:2]] + [-1.0]
    mean = sum(rewards) / 3
    deviation = (sum((reward - mean) ** 2 for reward in rewards) / 2) ** 0.5
    return [
        response(number, text, [], None)
        | {"prompt_id": PROMPT, "rubric": None, "rubric_id": None, "score_reason": "no_rubric",
           "reward": reward, "advantage": (reward - mean) / (deviation + 1e-4)}
        for number, (text, reward) in enumerate(zip(CARDS, rewards, strict=True))
    ]  # fmt: skip


def write_oracle(study: Path, rows: list[dict[str, Any]]) -> None:
    settings = {**RUBRICS, "evaluator": "oracle"}
    write(study, "policy", rows, {"rubrics": settings, "responses_per_set": 3})


def test_explain_of_an_oracle_goes_from_the_true_quality_to_the_checkpoint(
    study: Path, explain: Explain
) -> None:
    write_oracle(study, oracle_rows())
    found = json.loads(explain(study, CELL, f"1/{PROMPT}/0", "--json"))
    assert found["reward"] == found["true_quality"] > -1.0
    assert (found["score"], found["rubric"], found["judge"], found["items"]) == (
        None, None, None, []
    )  # fmt: skip
    assert not found["cut"]
    text = explain(study, CELL, f"1/{PROMPT}/0")
    assert "oracle, writes no rubrics" in text
    assert "the reward is the true quality" in text
    assert "invalid" not in text.lower()


def test_explain_of_an_oracles_cut_response_says_that_it_earned_the_lowest(
    study: Path, explain: Explain
) -> None:
    write_oracle(study, oracle_rows())
    text = explain(study, CELL, f"1/{PROMPT}/2")
    assert "cut at its token limit, so the reward is -1.0000" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reward": 0.99}, f"reward of 1/{PROMPT}/1: 0.99 is stored"),
        ({"score": 0.5}, f"score of 1/{PROMPT}/1: 0.5 is stored; expected None"),
        ({"rubric": RUBRIC, "rubric_id": name_of(RUBRIC)}, f"rubric of 1/{PROMPT}/1"),
    ],
)
def test_explain_of_an_oracle_whose_reward_is_not_the_true_quality_is_refused(
    study: Path, explain: Explain, change: dict[str, Any], said: str
) -> None:
    rows = oracle_rows()
    rows[1] |= change
    write_oracle(study, rows)
    assert said in explain(study, CELL, f"1/{PROMPT}/0", code=2)


def test_explain_generator_that_was_not_trained_says_so(study: Path, explain: Explain) -> None:
    path = study / "data/runs" / CELL / "generator/record.json"
    path.write_text(path.read_text().replace("train_generator", "keep_generator"))
    text = explain(study, CELL, "--generator", code=2)
    assert "a generator that this round did not train (step keep_generator)" in text


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"score": 0.5, "reward": 0.5}, "score of 1/oslo/1: 0.5 is stored; expected 0.75"),
    ({"verdicts": ["yes", "yes"]}, "score of 1/oslo/1: 0.75 is stored; expected 1.0"),
    ({"verdicts": ["yes"]}, "number of verdicts of 1/oslo/1: 1 is stored; expected 2"),
    ({"reward": 0.25}, "reward of 1/oslo/1: 0.25 is stored; expected 0.75"),
    ({"advantage": -0.7}, "advantage of 1/oslo/1: -0.7 is stored; expected -0.70"),
    ({"text": "other"}, "text hash of 1/oslo/1"),
    ({"rubric": "[]"}, "rubric id of 1/oslo/1"),
    ({"prompt_id": "rome"}, "2 rows in the group of 1/oslo/0; expected 3"),
]


@pytest.mark.parametrize(("change", "said"), BROKEN)
def test_explain_lineage_that_does_not_add_up_is_refused_and_the_difference_named(
    study: Path, explain: Explain, change: dict[str, Any], said: str
) -> None:
    rewrite(study, lambda row: row.update(change))
    text = explain(study, CELL, "1/oslo/0", code=2)
    assert said in text
    assert "policy/rollouts.parquet" in text


def test_explain_rubrics_of_another_generator_are_refused(study: Path, explain: Explain) -> None:
    path = study / "data/runs" / CELL / "generator/record.json"
    path.write_text(path.read_text().replace("hash of the generator", "another"))
    text = explain(study, CELL, "1/oslo/0", code=2)
    assert "generator that wrote the rubrics" in text


def test_explain_altered_file_is_refused_by_its_hash(study: Path, explain: Explain) -> None:
    path = study / "data/runs" / CELL / "policy/rollouts.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    assert "rollouts.parquet: got" in explain(study, CELL, "1/oslo/0", code=2)


def test_explain_round_that_an_arm_shares_names_the_cell_it_is(
    study: Path, explain: Explain
) -> None:
    path = ["coevolved-s1-r0", CELL]
    (study / "cells.json").write_text(json.dumps({"arms": {"stale": {"s1": path}}}))
    assert f"trained for all of them: {CELL}" in explain(study, "stale-s1-r1", code=2)
    assert "shares" not in explain(study, "stale-s1-r2", code=2)


def test_explain_unknown_names_say_which_are_near_and_how_to_list(
    study: Path, explain: Explain
) -> None:
    assert f"such as {CELL}" in explain(study, "coevolved-s1-r7", code=2)
    text = explain(study, CELL, "1/osl/0", code=2)
    assert "(near: 1/oslo/0" in text
    assert f"`dynamicrubric explain {CELL} --step 1`" in text
    assert "round 0 trains nothing" in explain(study, "coevolved-s1-r0", code=2)


def test_explain_of_an_arm_that_does_not_run_names_those_that_do(
    study: Path, explain: Explain
) -> None:
    planned = {"coevolved": {"s1": ["coevolved-s1-r0", CELL]}, "stale": {}}
    (study / "cells.json").write_text(json.dumps({"arms": planned}))
    for name in ("lambda_nine-s1-r1", "nothing", "../../etc"):
        text = explain(study, name, code=2)
        assert f"got '{name}'; expected a cell" in text
        assert "the arms that run: coevolved, stale" in text
    assert "the arms that run" not in explain(study, "coevolved-s1-r7", code=2)


def test_explain_loads_no_heavy_library(study: Path) -> None:
    heavy = ("torch", "transformers", "trl", "prefect", "mlflow", "dvc", "scipy")
    program = (
        "import sys; from dynamicrubric.explain_command import explain_row; from pathlib import "
        f"Path; explain_row(Path(), {CELL!r}, 'policy', '1/oslo/0', as_json=True); "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=study,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("}\n[]\n")
