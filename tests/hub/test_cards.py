"""Cards say what the run says: figures with intervals where seeds allow it, and nothing besides."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakehub import TOKEN, FakeHub
from huggingface_hub import DatasetCard, ModelCard
from project import command, give_weights, publish, small_model, write_study

from dynamicrubric.data.formats import Origin
from dynamicrubric.data.hub import stream_rows
from dynamicrubric.data.prepare import prepare
from dynamicrubric.data.settings import DataSettings, FilterSettings, SplitSettings
from dynamicrubric.data.sources import Reading, open_sources
from dynamicrubric.errors import UserError
from dynamicrubric.hashing import hash_of
from dynamicrubric.hub.cardparts import without_paths
from dynamicrubric.hub.dataset import write_dataset
from dynamicrubric.hub.modelfolder import write_model
from dynamicrubric.hub.trained import find_trained

CELL = "coevolved-s1-r1"
PARAMS = Path("params.yaml")


def card_of(root: Path, out: Path, role: Any, name: str, **options: Any) -> str:
    out.mkdir()
    write_model(out, root, PARAMS, role, name, repository="me/shared", **options)
    return (out / "README.md").read_text(encoding="utf-8")


def quality(root: Path, cell: str) -> float:
    path = root / "data/runs" / cell / "evaluation/metrics.json"
    return float(json.loads(path.read_text())["metrics"]["true_quality"]["value"])


def row_of(card: str, *beginning: str) -> list[str]:
    """Return the cells of the one table row that begins so."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines()]
    found = [row for row in rows if tuple(row[: len(beginning)]) == beginning]
    assert len(found) == 1, found
    return found[0]


def section(card: str, title: str) -> str:
    """Return the text below a heading, to the next of its kind."""
    mark = "\n" + title.split(" ", 1)[0] + " "
    return card.partition(f"\n{title}\n")[2].partition(mark)[0]


def test_card_quotes_the_round_the_arm_over_seeds_and_its_differences(
    study: Any, tmp_path: Path
) -> None:
    card = card_of(study.root, tmp_path / "out", "policy", CELL)
    own = [quality(study.root, f"coevolved-s{seed}-r1") for seed in (1, 2, 3)]
    mine = section(card, "### This round and seed")
    assert row_of(mine, "true quality")[1:3] == [f"{own[0]:.3f}", "144/144"]
    error = statistics.stdev(own) / 3**0.5 * 4.302653  # t with two degrees of freedom
    mean = statistics.fmean(own)
    over = section(card, "### The arm over 3 seeds")
    expected = [f"{mean:.3f}", f"{mean - error:.3f}", f"{mean + error:.3f}", "3"]
    assert row_of(over, "true quality")[1:] == expected
    others = [quality(study.root, f"frozen-s{seed}-r1") for seed in (1, 2, 3)]
    against = row_of(section(card, "### Against other arms"), "coevolved - frozen", "true quality")
    assert float(against[2]) == pytest.approx(mean - statistics.fmean(others), abs=1e-4)
    assert float(against[3]) < float(against[2]) < float(against[4])
    assert against[5] == "over 3 seeds and 24 prompts"


def test_metadata_of_the_card_are_the_hubs_own_form(study: Any, tmp_path: Path) -> None:
    card_of(study.root, tmp_path / "out", "policy", CELL, license_id="cc-by-4.0")
    data = ModelCard.load(tmp_path / "out/README.md").data
    said = data.to_dict()
    assert (said["license"], said["library_name"]) == ("cc-by-4.0", "transformers")
    assert {"dynamicrubric", "policy"} <= set(data.tags)
    results = {one.metric_type: one.metric_value for one in data.eval_results}
    assert results["true_quality"] == quality(study.root, CELL)
    assert "seconds" not in results


def test_card_has_method_commit_settings_and_no_path_of_the_machine(
    study: Any, tmp_path: Path
) -> None:
    card = card_of(study.root, tmp_path / "out", "generator", CELL)
    record = json.loads((study.root / "data/runs" / CELL / "generator/record.json").read_text())
    assert (record["provenance"]["git_commit"] or "not known") in card  # outside a checkout
    assert record["content_hash"] in card
    assert '"rows.jsonl"' in section(card, "## Settings")
    assert "/home/somebody" not in card
    assert str(study.root) not in card
    assert "Round 1, seed 1, of the arm coevolved" in card


def test_one_seed_gives_no_interval_and_no_difference(
    fake_study: Callable[..., Any], tmp_path: Path
) -> None:
    one = fake_study(arms=("coevolved", "frozen"), seeds=(1,), rounds=1)
    write_study(one)
    give_weights(one, CELL, "policy")
    card = card_of(one.root, tmp_path / "out", "policy", CELL)
    assert "No interval: 1 seed of the 3 that it takes." in card
    assert "None: the study compares arms" in section(card, "### Against other arms")
    assert "95 %" not in card
    assert "Too few seeds were run for any interval" in section(card, "## Limits")


def test_cells_that_are_not_finished_are_left_out_of_the_means(
    fake_study: Callable[..., Any], tmp_path: Path
) -> None:
    some = fake_study(arms=("coevolved",), seeds=(1, 2, 3, 4), rounds=1, write=False)
    write_study(some)
    for key in [*some.plan.starts, *some.plan.cells]:
        if "-s4-" not in key:
            some.write_cell(key)
    give_weights(some, CELL, "policy")
    card = card_of(some.root, tmp_path / "out", "policy", CELL)
    assert row_of(section(card, "### The arm over 3 seeds"), "true quality")[-1] == "3"


def test_folder_that_is_no_cell_has_no_figures(study: Any, tmp_path: Path) -> None:
    folder = publish(tmp_path, "mine", "warm_start", {"role": "policy"}, small_model)
    card = card_of(study.root, tmp_path / "out", "policy", str(folder))
    assert section(card, "## Figures").strip() == (
        "None: it was pushed as a folder, not as a cell of a study."
    )
    assert "Not known here" in section(card, "## Trained on")
    assert "model-index" not in card
    assert "Not stated by who pushed this." in card


def test_cell_of_other_settings_has_no_figures(
    fake_study: Callable[..., Any], tmp_path: Path
) -> None:
    one = fake_study(arms=("coevolved",), seeds=(1,), rounds=1)
    root = write_study(one)
    give_weights(one, CELL, "policy")
    text = (root / "params.yaml").read_text()
    assert "kl_beta: 0.05" in text
    (root / "params.yaml").write_text(text.replace("kl_beta: 0.05", "kl_beta: 0.06"))
    found = find_trained(root, PARAMS, "policy", CELL)
    assert (found.place, "of other settings" in found.lacking) == (None, True)


def test_round_0_is_the_warm_start_with_its_figures(
    fake_study: Callable[..., Any], tmp_path: Path
) -> None:
    one = fake_study(arms=("coevolved",), seeds=(1,), rounds=1)
    root = write_study(one)
    publish(root, "data/warm/policy", "warm_start", {"role": "policy"}, small_model)
    card = card_of(root, tmp_path / "out", "policy", "coevolved-s1-r0")
    value = quality(root, "coevolved-s1-r0")
    assert row_of(section(card, "### This round and seed"), "true quality")[1] == f"{value:.3f}"
    assert "no round has trained it" in section(card, "## Method")


def test_figures_of_another_checkpoint_are_not_quoted(
    fake_study: Callable[..., Any], tmp_path: Path
) -> None:
    one = fake_study(arms=("coevolved",), seeds=(1,), rounds=1)
    root = write_study(one)
    give_weights(one, CELL, "policy")
    path = root / "data/runs" / CELL / "evaluation/record.json"
    record = json.loads(path.read_text())
    record["inputs"] = {"policy": "f" * 64}
    names = ("step", "step_version", "identity", "inputs")
    record["identity_hash"] = hash_of({name: record[name] for name in names})
    path.chmod(0o644)
    path.write_text(json.dumps(record))
    card = card_of(root, tmp_path / "out", "policy", CELL)
    said = f"None: the cell {CELL} was measured with another policy."
    assert section(card, "## Figures").strip() == said


def test_paths_are_cut_to_their_last_part_wherever_they_are() -> None:
    value = {"a": ["/x/y.json", "C:\\me\\z.json", "data/raw"], "b": {"c": "hub:/x/base"}, "n": 1}
    cut = {"a": ["y.json", "z.json", "data/raw"], "b": {"c": "hub:base"}, "n": 1}
    assert without_paths(value) == cut


def row(number: int) -> dict[str, Any]:
    return {
        "id": f"row-{number}",
        "turns": [f"What is {number}?", "A number.", f"And {number + 1}?"][: 3 - number % 2 * 2],
        "responses": [f"It is number {number}, as {word} says." for word in ("one", "two", "six")],
        "ranking": [2, 0, 1],
        "tiers": [[2], [0, 1]] if number % 3 else [[2], [0], [1]],
        "source": "made up",
        "license": "MIT",
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared set of sixteen prompts, some of several turns, some with ties."""
    root = tmp_path_factory.mktemp("data")
    rows = root / "rows.jsonl"
    rows.write_text("".join(json.dumps(row(n)) + "\n" for n in range(16)))
    filters = FilterSettings(min_responses=3, min_prompt_chars=1, min_best_chars=1)
    settings = DataSettings(filters=filters, splits=SplitSettings(heldout_share=0.3))
    prepare([str(rows)], [], root / "set", settings)
    return root / "set"


def test_pushed_data_are_read_again_as_the_same_rows(prepared: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path, prepared, repository="me/data")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"README.md", "train.jsonl", "heldout.jsonl", "prompts.jsonl", "overlaps.csv"}
    source = prepared.parent / "rows.jsonl"
    whole = {(one.turns, one.responses, one.tiers, one.license) for one in rows_in(source)}
    parts = [rows_in(tmp_path / name) for name in ("train.jsonl", "heldout.jsonl")]
    assert all(parts)
    again = [(r.turns, r.responses, r.tiers, r.license) for part in parts for r in part]
    assert len(again) == len(set(again)) == 16
    assert set(again) == whole


def rows_in(path: Path) -> list[Any]:
    source = open_sources([str(path)], "none")[0]
    assert source.origin == Origin(path.stem, "none")
    return list(source.anchor_rows(0.0, Reading(source.name)))


def test_pushed_data_are_a_data_set_of_the_hub_whose_training_rows_come_first(
    prepared: Path, tmp_path: Path
) -> None:
    write_dataset(tmp_path, prepared, repository="me/data")
    lines = (tmp_path / "train.jsonl").read_text().splitlines()
    assert [one["id"] for one in stream_rows(str(tmp_path), None)] == [
        json.loads(line)["id"] for line in lines
    ]


def test_card_of_data_has_licence_counts_and_the_sets_own_text(
    prepared: Path, tmp_path: Path
) -> None:
    write_dataset(tmp_path, prepared, repository="me/data")
    card = DatasetCard.load(tmp_path / "README.md")
    assert card.data.license == "mit"
    assert "## What was left out" in card.text
    assert str(prepared.parent) not in card.content
    assert card.text.count("## Settings") == 1


def test_data_are_pushed_to_a_repository_of_data_sets(prepared: Path, hub: FakeHub) -> None:
    done = command(
        "hub", "push", "data", prepared, "--repo", "me/data", cwd=prepared.parent, url=hub.url,
        HF_TOKEN=TOKEN,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = hub.dataset("me/data")
    assert found.private
    assert {"README.md", "train.jsonl", "heldout.jsonl"} < found.files.keys()


@pytest.mark.parametrize("damage", [True, False])
def test_what_are_no_prepared_data_or_damaged_is_refused(
    study: Any, prepared: Path, tmp_path: Path, damage: bool
) -> None:
    folder = study.root / "data/runs" / CELL / "policy"
    if damage:
        folder = tmp_path / "copy"
        folder.mkdir()
        for path in prepared.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        (folder / "prompts.jsonl").write_text("")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UserError, match="was altered" if damage else "of the step train_policy"):
        write_dataset(out, folder, repository="me/data")
    assert not list(out.iterdir())
