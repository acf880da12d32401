"""How much a plan samples and judges, step by step, and what that took before.

Amounts are bounds: every text is as long as it may be, every rubric has as many items as it may.
Times rest on earlier runs in this folder alone, of the same backbone with the same length limits;
without any, nothing is said.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, Final

from dynamicrubric.cells import identity_of
from dynamicrubric.config import Config, LanguageConfig
from dynamicrubric.engines.packing import room_behind
from dynamicrubric.enginesettings import IN_PROCESS, GeneratorEngine
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS, SCORED
from dynamicrubric.plan import RUNS_DIR, WARM_DIR, Cell, Plan, expand
from dynamicrubric.preflight.facts import Work
from dynamicrubric.preflight.lengths import Lengths
from dynamicrubric.worlds.postcards.prompts import all_prompts

ROLES: Final = ("policy", "generator")
WARM_START: Final = "warm_start"
TRAIN_REWARD: Final = "train_reward"
"""The training of a reward model: the step `train_generator` of an arm that has one."""
PACKED_TOKENS: Final = 8192
"""Of a packed pass on a GPU (`engines.verifier.GPU_BUDGET`; a test says that it is)."""


def countable_plan(config: Config) -> Plan:
    """Return a plan with the cells of this config's, also where its files are not there yet.

    What the files are is part of cells' ids, so this plan's ids are good for nothing but counting.
    """
    if not isinstance(config.world, LanguageConfig):
        return expand(config)
    world = config.world.model_copy(update={"anchors": ("hub:any",), "against": ()})
    backbone = config.backbone.model_copy(update={"checkpoint": "any/any"})
    return expand(config.model_copy(update={"world": world, "backbone": backbone}))


def num_prompts(config: Config) -> tuple[int, int]:
    """Return the number of training and of held-out prompts."""
    world = config.world
    if isinstance(world, LanguageConfig):
        return world.num_train_prompts, world.num_heldout_prompts
    return len(all_prompts()) - world.num_heldout_prompts, world.num_heldout_prompts


def planned_work(config: Config, plan: Plan, lengths: Lengths) -> tuple[Work, ...]:
    """Return what the warm starts and all cells of a plan do, by step."""
    found: dict[str, Work] = {}
    for cell in (*plan.starts.values(), *plan.cells.values()):
        for work in _cell_work(cell, num_prompts(config), config.world.num_anchors, lengths):
            before = found.get(work.step)
            found[work.step] = total_work((before, work), work.step) if before else work
    order = (
        *("sample_responses", "train_generator", TRAIN_REWARD),
        *("train_policy", "evaluate_round"),
    )
    return (*_warm_starts(config, lengths), *(found[step] for step in order if step in found))


def total_work(parts: Sequence[Work], name: str) -> Work:
    """Add up; the time is unknown if that of a part is."""
    names = ("runs", "completions", "tokens_read", "tokens_written", "verdicts", "tokens_judged")
    seconds = [one.seconds for one in parts]
    known = [value for value in seconds if value is not None]
    counts = Work(name, *(sum(getattr(one, name) for one in parts) for name in names))
    return replace(
        counts,
        seconds=sum(known) if len(known) == len(seconds) else None,
        based_on=sum(one.based_on for one in parts),
    )


def _warm_starts(config: Config, lengths: Lengths) -> Iterator[Work]:
    """Yield each warm start, whose texts are read and trained on, not sampled."""
    for role in ROLES:
        settings = getattr(config.warm_start, role)
        if settings.steps:
            texts = settings.steps * settings.batch_size
            length = getattr(lengths, f"warm_{role}")
            yield Work(f"{WARM_START} {role}", 1, 0, texts * length, 0, 0)


def _cell_work(
    cell: Cell, prompts: tuple[int, int], num_anchors: int, lengths: Lengths
) -> Iterator[Work]:
    recipe = cell.recipe
    size, evaluator = recipe.responses_per_set, recipe.rubrics.evaluator
    # An oracle's reward is the true quality, and other scores take no verdicts.
    items = 0 if evaluator == "oracle" or evaluator in SCORED else recipe.rubrics.max_items
    policy, generator = recipe.policy_training, recipe.generator_training
    reward = recipe.reward_training
    if policy is not None:
        yield _work("sample_responses", lengths, policy=prompts[0] * size)
    kept = sum(prompts) if evaluator in KEEPS_RUBRICS and recipe.round == 1 else 0
    if generator is not None or kept:
        steps = generator.steps * generator.prompts_per_step if generator else 0
        group = generator.group_size if generator else 0
        yield _work(
            "train_generator",
            lengths,
            generator=steps * group + kept,
            judged=steps * (size + num_anchors),
            rubrics=group,
            items=items,
        )
    if reward is not None:  # both texts of each pair
        texts = 2 * reward.steps * reward.batch_size
        yield Work(TRAIN_REWARD, 1, 0, texts * lengths.rewarded, 0, 0)
    if policy is not None:
        sets = policy.steps * policy.prompts_per_step
        yield _work(
            "train_policy",
            lengths,
            policy=sets * size,
            generator=sets * recipe.rubrics.orders if evaluator == "dynamic" else 0,
            judged=sets * size,
            items=items,
        )
    sets = prompts[1] * recipe.evaluation.sets_per_prompt
    shown = sets * recipe.rubrics.orders
    measured = size * (1 if cell.before is None else 2)  # also the sets of the round before
    yield _work(
        "evaluate_round",
        lengths,
        policy=sets * size,
        generator=_measured_rubrics(evaluator, recipe.round, shown, prompts[1]),
        judged=sets * (measured + num_anchors),
        items=items,
    )


def _measured_rubrics(evaluator: str, round_number: int, sets: int, heldout: int) -> int:
    """Return the rubrics that a round's evaluation writes.

    A dynamic evaluator writes one for each set and order, and from round 1 on for those of the
    round before; a static one has none yet in round 0, and writes one for each prompt.
    """
    if evaluator == "dynamic":
        return sets * (1 if round_number == 0 else 2)
    return heldout if evaluator in KEEPS_RUBRICS and round_number == 0 else 0


def _work(
    step: str,
    lengths: Lengths,
    *,
    policy: int = 0,
    generator: int = 0,
    judged: int = 0,
    rubrics: int = 1,
    items: int = 0,
) -> Work:
    """Return the work of one step: texts sampled by role, and responses judged by rubrics."""
    return Work(
        step,
        1,
        policy + generator,
        policy * lengths.policy_in + generator * lengths.generator_in,
        policy * lengths.policy_out + generator * lengths.generator_out,
        judged * rubrics * items,
        judged * _tokens_judged(lengths, rubrics, items) if lengths.judged else 0,
    )


def _tokens_judged(lengths: Lengths, rubrics: int, items: int) -> int:
    """Return what a language model reads to judge one response by so many rubrics, at most."""
    questions = rubrics * lengths.asked
    passes = ceil(questions / room_behind(lengths.judged, PACKED_TOKENS))
    return passes * lengths.judged + questions if items else 0


def timed(work: tuple[Work, ...], config: Config, root: Path) -> tuple[Work, ...]:
    """Return the work with its time by the median completions a second of earlier runs.

    A warm start that was run here with these settings takes what it took.
    """
    rates, warm = measured_rates(config, root), _warm_seconds(config, root)
    return tuple(
        replace(one, seconds=warm[one.step], based_on=1)
        if one.step in warm
        else replace(
            one,
            seconds=one.completions / statistics.median(rates[one.step]),
            based_on=len(rates[one.step]),
        )
        if one.step in rates
        else one
        for one in work
    )


def _warm_seconds(config: Config, root: Path) -> dict[str, float]:
    """Return what the warm starts of a folder took, of the same backbone with the same settings."""
    found = {}
    for role in ROLES:
        record = read_record(root / WARM_DIR / role / "record.json") or {}
        ours = {
            "backbone": config.backbone.model_dump(mode="json"),
            "settings": getattr(config.warm_start, role).model_dump(mode="json"),
        }
        identity, seconds = record.get("identity"), record.get("provenance", {}).get("seconds")
        if isinstance(identity, dict) and ours.items() <= identity.items() and seconds:
            found[f"{WARM_START} {role}"] = float(seconds)
    return found


def measured_rates(config: Config, root: Path) -> dict[str, list[float]]:
    """Return completions a second of earlier steps in a folder that this config could have run.

    A record counts if the folder's warm starts are of the same backbone, and the step had the same
    length limits and the engines of this config's recipe.
    """
    warm = read_record(root / WARM_DIR / "generator" / "record.json")
    ours = config.backbone.model_dump(mode="json")
    if warm is None or warm.get("identity", {}).get("backbone") != ours:
        return {}
    found: dict[str, list[float]] = {}
    for path in sorted((root / RUNS_DIR).glob("*/*/record.json")):
        record = read_record(path)
        try:
            if record is None or not _same_limits(record["identity"], config):
                continue
            if not _same_engines(record["step"], record["identity"], config):
                continue
            rate = _rate(record, num_prompts(config))
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            continue  # not a record of a step that samples, or a broken one: it counts for nothing
        found.setdefault(record["step"], []).append(rate)
    return found


def _same_limits(identity: Mapping[str, Any], config: Config) -> bool:
    recipe = config.recipe
    pairs = (
        (identity.get("sampling"), recipe.policy.max_tokens),
        (identity.get("rubrics", {}).get("sampling"), recipe.generator.max_tokens),
    )
    return all(not section or section["max_tokens"] == limit for section, limit in pairs)


def _said(engine: GeneratorEngine) -> dict[str, Any] | None:
    """Return what an identity says of an engine: nothing of the task's own process."""
    return None if engine == IN_PROCESS else identity_of(engine)


def _same_engines(step: str, identity: Mapping[str, Any], config: Config) -> bool:
    """Say whether what sampled and judged in a step is what the recipe names; its own is unsaid."""
    recipe, pairs = config.recipe, list[tuple[Any, GeneratorEngine]]()
    if step in ("sample_responses", "evaluate_round"):
        pairs.append((identity.get("engine"), recipe.policy.engine))
    if step in ("train_policy", "evaluate_round"):
        pairs.append((identity.get("rubrics", {}).get("engine"), recipe.generator.engine))
    same = [found == _said(engine) for found, engine in pairs]
    judge, ours = identity.get("verifier"), identity_of(recipe.verifier)
    return all(same) and (judge is None or judge.get("engine") == ours.get("engine"))


def _rate(record: Mapping[str, Any], prompts: tuple[int, int]) -> float:
    """Return the completions a second of a recorded step, all that it sampled counted."""
    step, identity = record["step"], record["identity"]
    size = int(identity.get("responses_per_set", 0))  # a generator's training needs none
    evaluator = identity.get("rubrics", {}).get("evaluator")
    orders = identity.get("rubrics", {}).get("orders", 1)
    training = identity.get("training")
    if step == "sample_responses":
        completions = prompts[0] * size
    elif step == "train_generator":
        kept = sum(prompts) if evaluator in KEEPS_RUBRICS else 0
        completions = kept + (_num_sets(training) * training["group_size"] if training else 0)
    elif step == "train_policy":
        completions = _num_sets(training) * (size + orders * (evaluator == "dynamic"))
    elif step == "evaluate_round":
        sets = prompts[1] * identity["evaluation"]["sets_per_prompt"]
        rubrics = _measured_rubrics(evaluator, identity["round"], sets * orders, prompts[1])
        completions = sets * size + rubrics
    else:
        raise KeyError(step)
    return float(completions / float(record["provenance"]["seconds"]))


def _num_sets(training: Mapping[str, Any]) -> int:
    return int(training["steps"] * training["prompts_per_step"])


def read_record(path: Path) -> dict[str, Any] | None:
    """Return a record's content, None where there is none that can be read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
