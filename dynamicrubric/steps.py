"""The steps of a study, as the child processes run them: folders in, one folder out.

Each function computes and writes its artefact's files; where it runs, its record and its lock are
the launcher's business. Arguments are JSON, so that a step can be started from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dynamicrubric.config import BackboneConfig, SupervisedConfig, WorldConfig
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.plan import CellRecipe, GeneratorTraining, PolicyTraining, parse_recipe
from dynamicrubric.prompts.frames import generator_prompt, policy_prompt
from dynamicrubric.rubrics import render_rubric
from dynamicrubric.seeds import derive_seed
from dynamicrubric.worlds.noise import noisy_anchors
from dynamicrubric.worlds.postcards.criteria import check, names, true_quality
from dynamicrubric.worlds.postcards.prompts import prompt_by_id
from dynamicrubric.worlds.postcards.rules import rules
from dynamicrubric.worlds.prepared import PreparedData, Split, load_prepared, read_jsonl

if TYPE_CHECKING:
    from dynamicrubric.engines.transformers import TransformersEngine
    from dynamicrubric.evaluation import SampledSet
    from dynamicrubric.evaluators.judging import ResponseSet
    from dynamicrubric.evaluators.writers import DynamicWriter, RubricWriter
    from dynamicrubric.training.generator import GeneratorRollout
    from dynamicrubric.training.grpo import GrpoSettings
    from dynamicrubric.training.oracle import OracleRollout
    from dynamicrubric.training.policy import PolicyRollout

Role = Literal["policy", "generator"]


def prepare(
    *,
    world: Mapping[str, Any],
    vocab_size: int,
    responses_per_set: int,
    min_rubric_items: int,
    max_rubric_items: int,
    out_dir: str,
) -> None:
    """Write the world's data and train its tokenizer."""
    from dynamicrubric.engines.tokenizer import train_tokenizer
    from dynamicrubric.worlds.postcards.prepare import write_world

    out = Path(out_dir)
    write_world(
        WorldConfig.model_validate(dict(world)),
        responses_per_set,
        (min_rubric_items, max_rubric_items),
        out,
    )
    texts: list[str] = []
    for row in read_jsonl(out / "sft_generator.jsonl"):
        texts += [row["prompt"], *row["responses"], row["rubric"]]
    texts += [row["response"] for row in read_jsonl(out / "sft_policy.jsonl")]
    train_tokenizer(texts, vocab_size, names()).save_pretrained(str(out / "tokenizer"))


def warm_start(
    *,
    role: Role,
    prepared_dir: str,
    backbone: Mapping[str, Any],
    settings: Mapping[str, Any],
    seed: int,
    out_dir: str,
    work_dir: str,
) -> None:
    """Train P_0 or G_0 by supervised fine-tuning."""
    from dynamicrubric.engines.tokenizer import FrameTokenizer
    from dynamicrubric.training import sft

    prepared = Path(prepared_dir)
    tokenizer = FrameTokenizer.load(prepared / "tokenizer")
    make = sft.policy_examples if role == "policy" else sft.generator_examples
    sft.train_supervised(
        make(prepared, tokenizer),
        BackboneConfig.model_validate(dict(backbone)),
        SupervisedConfig.model_validate(dict(settings)),
        tokenizer,
        seed=derive_seed(seed, "warm_start", role),
        out_dir=Path(out_dir),
        work_dir=Path(work_dir),
    )


def sample_responses(
    *, recipe: Mapping[str, Any], policy_dir: str, prepared_dir: str, out_dir: str
) -> None:
    """Sample one response set for each training prompt from a policy."""
    from dynamicrubric.engines.transformers import TransformersEngine

    cell = parse_recipe(recipe)
    engine = TransformersEngine.load(Path(policy_dir))
    sets = _sample_sets(
        engine,
        load_prepared(Path(prepared_dir)),
        "train",
        cell,
        1,
        (cell.seed, cell.round, "sample"),
    )
    _write_sets(sets, Path(out_dir) / "responses.parquet")


def train_generator(
    *,
    recipe: Mapping[str, Any],
    generator_dir: str,
    responses_dir: str,
    prepared_dir: str,
    out_dir: str,
    work_dir: str,
    checkpoint_every_steps: int,
) -> None:
    """Train the generator with GRPO; a static one then writes its rubrics once and keeps them."""
    from dynamicrubric.training.generator import GeneratorRollout
    from dynamicrubric.training.grpo import train_grpo

    cell = parse_recipe(recipe)
    training = cell.generator_training
    prepared = load_prepared(Path(prepared_dir))
    if training is not None:
        sets = _training_sets(cell, prepared, Path(responses_dir))
        rollout = GeneratorRollout(
            sets=sets,
            anchors=_anchors(cell, prepared),
            verifier=_verifier(cell),
            sees_responses=cell.rubrics.evaluator == "dynamic",
            min_items=cell.rubrics.min_items,
            max_items=cell.rubrics.max_items,
            sampling=cell.rubrics.sampling,
            max_invalid_rate=training.max_invalid_rate,
            max_unscored_rate=cell.verifier.max_unscored_rate,
            seed_name=(cell.seed, cell.round, "train_generator"),
            equal_weights=cell.rubrics.weights == "equal",
        )
        weights = {"r_disc": training.objective.disc, "r_anchor": training.objective.anchor}
        settings = _grpo_settings(
            training,
            rollout,
            group_size=training.group_size,
            reward_weights=weights,
            checkpoint_every_steps=checkpoint_every_steps,
        )
        train_grpo(
            Path(generator_dir),
            list(sets),
            rollout,
            settings,
            out_dir=Path(out_dir),
            work_dir=Path(work_dir),
        )
        generator_dir = out_dir
    if cell.rubrics.evaluator == "static":
        _keep_rubrics(cell, Path(generator_dir), prepared, Path(out_dir))


def train_policy(
    *,
    recipe: Mapping[str, Any],
    cell_hash: str,
    policy_dir: str,
    generator_dir: str,
    prepared_dir: str,
    out_dir: str,
    work_dir: str,
    checkpoint_every_steps: int,
) -> None:
    """Train the policy with GRPO on its evaluator's scores, an oracle's on the true quality."""
    from dynamicrubric.training.grpo import train_grpo

    cell = parse_recipe(recipe)
    training = cell.policy_training
    assert training is not None, "round 0 trains nothing"
    prepared = load_prepared(Path(prepared_dir))
    rollout = _policy_rollout(cell, training, prepared, Path(generator_dir), cell_hash)
    settings = _grpo_settings(
        training,
        rollout,
        group_size=cell.responses_per_set,
        reward_weights={"true_quality" if cell.rubrics.evaluator == "oracle" else "score": 1.0},
        checkpoint_every_steps=checkpoint_every_steps,
    )
    train_grpo(
        Path(policy_dir),
        list(prepared.prompts["train"]),
        rollout,
        settings,
        out_dir=Path(out_dir),
        work_dir=Path(work_dir),
    )


def evaluate_round(
    *,
    recipe: Mapping[str, Any],
    policy_dir: str,
    generator_dir: str,
    start_policy_dir: str,
    prepared_dir: str,
    out_dir: str,
) -> None:
    """Measure policy and generator on held-out prompts; KL is against the start policy P_0."""
    from dataclasses import replace

    from dynamicrubric.engines.transformers import (
        TransformersEngine,
        load_model,
        sequence_logprobs,
    )
    from dynamicrubric.evaluation import (
        evaluate_sets,
        evaluate_without_rubrics,
        write_evaluation,
    )

    cell = parse_recipe(recipe)
    prepared = load_prepared(Path(prepared_dir))
    engine = TransformersEngine.load(Path(policy_dir))
    seed_name = (cell.seed, cell.round, "evaluate")
    sets = _sample_sets(
        engine, prepared, "heldout", cell, cell.evaluation.sets_per_prompt, seed_name
    )
    prompts = [
        policy_prompt(engine.tokenizer, s.responses.prompt) for s in sets for _ in s.generations
    ]
    completions = [g.token_ids for s in sets for g in s.generations]
    pad_id = engine.tokenizer.pad_id
    temperature = cell.policy_sampling.temperature
    before = load_model(Path(start_policy_dir))
    now = sequence_logprobs(engine.model, prompts, completions, pad_id, temperature)
    start = sequence_logprobs(before, prompts, completions, pad_id, temperature)
    kl = iter([a - b for a, b in zip(now, start, strict=True)])
    sets = [replace(s, kl=tuple(next(kl) for _ in s.generations)) for s in sets]
    if cell.rubrics.evaluator == "oracle":
        write_evaluation(evaluate_without_rubrics(sets, _quality), Path(out_dir))
        return
    evaluation = evaluate_sets(
        sets,
        _writer(cell, Path(generator_dir), prepared.prompts["heldout"]),
        _verifier(cell),
        _quality,
        min_items=cell.rubrics.min_items,
        max_items=cell.rubrics.max_items,
        max_invalid_rate=cell.evaluation.max_invalid_rate,
        max_unscored_rate=cell.verifier.max_unscored_rate,
        seed_name=seed_name,
        equal_weights=cell.rubrics.weights == "equal",
    )
    write_evaluation(evaluation, Path(out_dir))


def evaluate_grid(
    *,
    recipe: Mapping[str, Any],
    rounds: Mapping[str, int],
    evaluation_dirs: Mapping[str, str],
    generator_dirs: Mapping[str, str],
    out_dir: str,
) -> None:
    """Measure every generator on every policy's held-out sets, as the policy's round was measured.

    All generators see the same sets, and a set's draws have the names that they have in its round:
    a round's own generator writes the rubrics of its evaluation again.

    Args:
        recipe: how rubrics are written and judged.
        rounds: the round of each policy.
        evaluation_dirs: the evaluation that holds each policy's sets.
        generator_dirs: the generators.
        out_dir: where figures and rubrics go.
    """
    from dynamicrubric.evaluation import measure_sets
    from dynamicrubric.gridfiles import read_sets, write_grid

    cell = parse_recipe(recipe)
    held_out = {policy: read_sets(Path(folder)) for policy, folder in evaluation_dirs.items()}
    measured = {}
    for generator, folder in generator_dirs.items():
        writer = _dynamic_writer(cell, Path(folder))
        for policy, (sets, quality) in held_out.items():
            measured[generator, policy] = measure_sets(
                f"the held-out sets of {policy} under {generator}",
                sets,
                writer,
                _verifier(cell),
                quality,
                min_items=cell.rubrics.min_items,
                max_items=cell.rubrics.max_items,
                max_invalid_rate=cell.evaluation.max_invalid_rate,
                max_unscored_rate=cell.verifier.max_unscored_rate,
                seed_name=(cell.seed, rounds[policy], "evaluate"),
                equal_weights=cell.rubrics.weights == "equal",
            )
    write_grid(measured, Path(out_dir))


def _policy_rollout(
    cell: CellRecipe,
    training: PolicyTraining,
    prepared: PreparedData,
    generator_dir: Path,
    cell_hash: str,
) -> PolicyRollout | OracleRollout:
    from dynamicrubric.training.oracle import OracleRollout
    from dynamicrubric.training.policy import PolicyRollout

    prompts = prepared.prompts["train"]
    seed_name = (cell.seed, cell.round, "train_policy")
    if cell.rubrics.evaluator == "oracle":
        return OracleRollout(
            prompts=prompts,
            quality=_quality,
            sampling=cell.policy_sampling,
            seed_name=seed_name,
            cell_hash=cell_hash,
        )
    return PolicyRollout(
        prompts=prompts,
        writer=_writer(cell, generator_dir),
        verifier=_verifier(cell),
        min_items=cell.rubrics.min_items,
        max_items=cell.rubrics.max_items,
        sampling=cell.policy_sampling,
        max_invalid_rate=training.max_invalid_rate,
        max_unscored_rate=cell.verifier.max_unscored_rate,
        seed_name=seed_name,
        cell_hash=cell_hash,
        equal_weights=cell.rubrics.weights == "equal",
    )


def _grpo_settings(
    training: GeneratorTraining | PolicyTraining,
    rollout: GeneratorRollout | PolicyRollout | OracleRollout,
    *,
    group_size: int,
    reward_weights: Mapping[str, float],
    checkpoint_every_steps: int,
) -> GrpoSettings:
    """Return a training's numbers; sampling and the draws' name are those of its rollout."""
    from dynamicrubric.training.grpo import GrpoSettings

    return GrpoSettings(
        steps=training.steps,
        prompts_per_step=training.prompts_per_step,
        group_size=group_size,
        learning_rate=training.learning_rate,
        kl_beta=training.kl_beta,
        temperature=rollout.sampling.temperature,
        max_tokens=rollout.sampling.max_tokens,
        reward_weights=reward_weights,
        seed=derive_seed(*rollout.seed_name, "order"),
        checkpoint_every_steps=checkpoint_every_steps,
    )


def _verifier(cell: CellRecipe) -> ProgrammaticVerifier:
    return ProgrammaticVerifier(check, cell.verifier.error_rate, cell.verifier.failure_rate)


def _quality(prompt_id: str, text: str) -> float:
    return true_quality(prompt_by_id(prompt_id), text)


def _anchors(cell: CellRecipe, prepared: PreparedData) -> dict[str, tuple[str, ...]]:
    """Return the anchor lists as this cell's training reads them, label noise included."""
    training = cell.generator_training
    if training is None or not training.anchor_swap_rate:
        return prepared.anchors
    return noisy_anchors(prepared.anchors, training.anchor_swap_rate, cell.seed)


def _sample_sets(
    engine: TransformersEngine,
    prepared: PreparedData,
    split: Split,
    cell: CellRecipe,
    sets_per_prompt: int,
    seed_name: tuple[str | int, ...],
) -> list[SampledSet]:
    """Sample `sets_per_prompt` sets of K responses for each prompt of a split."""
    from dynamicrubric.engines.base import GenerateRequest
    from dynamicrubric.evaluation import SampledSet
    from dynamicrubric.evaluators.judging import ResponseSet

    size = cell.responses_per_set
    names = [(key, index) for key in prepared.prompts[split] for index in range(sets_per_prompt)]
    requests = [
        GenerateRequest(
            policy_prompt(engine.tokenizer, prepared.prompts[split][key]),
            derive_seed(*seed_name, key, index, sample),
        )
        for key, index in names
        for sample in range(size)
    ]
    generations = engine.generate(requests, cell.policy_sampling)
    sets = []
    for place, (key, index) in enumerate(names):
        group = tuple(generations[place * size : (place + 1) * size])
        texts = tuple(generation.text for generation in group)
        sets.append(
            SampledSet(
                f"{key}/{index}", ResponseSet(key, prepared.prompts[split][key], texts), group, ()
            )
        )
    return sets


def _write_sets(sets: Sequence[SampledSet], path: Path) -> None:
    import pandas as pd

    rows = [
        {
            "set_id": one.set_id,
            "prompt_id": one.responses.prompt_id,
            "sample_index": index,
            "text": generation.text,
            "num_tokens": len(generation.token_ids),
            "finish_reason": generation.finish_reason,
        }
        for one in sets
        for index, generation in enumerate(one.generations)
    ]
    pd.DataFrame(rows).to_parquet(path, index=False)


def _training_sets(
    cell: CellRecipe, prepared: PreparedData, responses_dir: Path
) -> dict[str, ResponseSet]:
    """Return the response set of each training row: sampled ones, or the anchor lists."""
    import pandas as pd

    from dynamicrubric.evaluators.judging import ResponseSet

    prompts = prepared.prompts["train"]
    training = cell.generator_training
    assert training is not None
    if training.responses == "anchors":
        anchors = _anchors(cell, prepared)
        return {key: ResponseSet(key, prompts[key], anchors[key]) for key in prompts}
    table = pd.read_parquet(responses_dir / "responses.parquet")
    return {
        str(set_id): ResponseSet(
            str(rows["prompt_id"].iloc[0]),
            prompts[str(rows["prompt_id"].iloc[0])],
            tuple(rows.sort_values("sample_index")["text"]),
        )
        for set_id, rows in table.groupby("set_id", sort=False)
    }


def _dynamic_writer(cell: CellRecipe, generator_dir: Path) -> DynamicWriter:
    from dynamicrubric.engines.transformers import TransformersEngine
    from dynamicrubric.evaluators.writers import DynamicWriter

    engine = TransformersEngine.load(generator_dir)
    return DynamicWriter(
        engine,
        lambda prompt, responses: generator_prompt(engine.tokenizer, prompt, responses),
        cell.rubrics.sampling,
    )


def _writer(
    cell: CellRecipe, generator_dir: Path, prompts: Mapping[str, str] | None = None
) -> RubricWriter:
    """Return the evaluator's rubric writer.

    Round 0 of a static evaluator has no kept rubrics yet: they are written here, for `prompts`.
    """
    from dynamicrubric.evaluators.writers import FixedWriter, KeptWriter

    if cell.rubrics.evaluator == "rule_based":
        return FixedWriter(render_rubric(rules(cell.rubrics.max_items)))
    if cell.rubrics.evaluator == "dynamic":
        return _dynamic_writer(cell, generator_dir)
    if cell.round > 0:
        return KeptWriter.load(generator_dir)
    writer = _dynamic_writer(cell, generator_dir)
    return KeptWriter.write_once(prompts or {}, writer, _rubric_seeds(cell, prompts or {}))


def _rubric_seeds(cell: CellRecipe, prompts: Mapping[str, str]) -> dict[str, int]:
    return {key: derive_seed(cell.seed, "kept_rubric", key) for key in prompts}


def _keep_rubrics(
    cell: CellRecipe, generator_dir: Path, prepared: PreparedData, out_dir: Path
) -> None:
    """Write a static evaluator's rubrics for all prompts into the generator's artefact."""
    from dynamicrubric.evaluators.writers import KeptWriter

    prompts = prepared.all_prompts
    writer = _dynamic_writer(cell, generator_dir)
    KeptWriter.write_once(prompts, writer, _rubric_seeds(cell, prompts)).save(out_dir)
