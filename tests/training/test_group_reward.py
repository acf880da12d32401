"""GroupRubricReward in TRL's own trainer, with the models of the tiny world."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "grpo_reward.py"


@pytest.fixture
def project(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose prepared data and warm starts are the tiny world's."""
    text = (ROOT / "profiles/postcards.yaml").read_text(encoding="utf-8")
    for key, value in (("min", 1), ("max", 2)):
        text = re.sub(rf"{key}_rubric_items: \d+", f"{key}_rubric_items: {value}", text)
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    shutil.copytree(tiny.prepared, tmp_path / "data" / "prepared")
    for role in ("policy", "generator"):
        shutil.copytree(getattr(tiny, role), tmp_path / "data" / "warm" / role)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_example(**changed: str) -> list[dict[str, float]]:
    """Run the guide's example, with other settings, and return TRL's log."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("coevolved-s1-r1", "data/warm/generator")
    for key, value in {"max_steps": "2", **changed}.items():
        text, count = re.subn(rf"\b{key}=[\w.-]+", f"{key}={value}", text)
        assert count == 1, f"the example has no {key}"
    names: dict[str, Any] = {}
    exec(compile(text, str(EXAMPLE), "exec"), names)
    return list(names["trainer"].state.log_history)


def test_example_trains_and_logs_reward_rates_and_cost(project: Path) -> None:
    log = [row for row in run_example() if "reward" in row]
    assert len(log) == 2
    for row in log:
        assert 0.0 < row["rewards/rubric/mean"] < 1.0
        assert 0.0 <= row["rubric/unscored_rate"] <= 0.5
        assert row["rubric/calls"] == 8
        assert row["rubric/prompt_tokens"] > 0
        assert row["rubric/verdicts"] > 0
        assert row["grad_norm"] > 0


def test_example_with_a_group_size_that_is_not_the_trainers_is_refused(project: Path) -> None:
    with pytest.raises(ValueError, match="num_generations"):
        run_example(group_size="6")


def test_reward_of_the_trained_world_is_the_evaluators_score(project: Path) -> None:
    from dynamicrubric import GroupRubricReward
    from dynamicrubric.doors.opening import EvaluatorOptions, open_evaluator

    options = EvaluatorOptions(generator="data/warm/generator")
    texts = ["Hello Emma, thank you!", "THE GREAT BIG CITY", "Greetings from Lima. 3 cats."] * 2
    with open_evaluator(options) as opened:
        prompts = list(opened.prompt_ids)[:6]
        found = []
        for prompt in prompts:
            reward = GroupRubricReward(opened.evaluator, group_size=6, max_unscored_rate=1.0)
            found.append(reward.score([prompt] * 6, texts))
            again = reward.score([prompt] * 6, texts)
            assert again == found[-1]
            reward.close()
    scored = [one for one in found if None not in one]
    assert scored, "not one valid rubric: the tiny generator is worse than it was"
    assert all(one[:3] == one[3:] for one in scored)
    assert all(0.0 <= value <= 1.0 for one in scored for value in one if value is not None)
