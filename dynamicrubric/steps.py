"""The steps of a study, as the child processes run them: folders in, one folder out.

Each function computes and writes its artefact's files; where it runs, its record and its lock are
the launcher's business. Arguments are JSON, so that a step can be started from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dynamicrubric.config import (
    LanguageConfig,
    PretrainedConfig,
    SupervisedConfig,
    WorldConfig,
)
from dynamicrubric.plan import parse_recipe
from dynamicrubric.seeds import derive_seed
from dynamicrubric.stepparts import (
    anchors_of,
    dynamic_writer,
    grpo_settings,
    judging_of,
    keep_rubrics,
    policy_rollout,
    sample_sets,
    training_sets,
    with_kl,
    write_sets,
    writer_of,
)
from dynamicrubric.worlds.base import POSTCARDS, world_named
from dynamicrubric.worlds.prepared import load_prepared

Role = Literal["policy", "generator"]


def prepare(
    *,
    world: Mapping[str, Any],
    responses_per_set: int,
    min_rubric_items: int,
    max_rubric_items: int,
    out_dir: str,
    vocab_size: int = 0,
    backbone: Mapping[str, Any] | None = None,
    sources: Sequence[Mapping[str, str]] = (),
    prompts: str = "",
) -> None:
    """Write the world's data, and its tokenizer or its pretrained base.

    Args:
        world: its settings.
        responses_per_set: K.
        min_rubric_items: fewest items of a warm start's rubric.
        max_rubric_items: most items.
        out_dir: an empty folder.
        vocab_size: of the embedded world's tokenizer.
        backbone: the pretrained backbone of another world.
        sources: what that world's files were when the study was planned.
        prompts: hash of what its models are asked with; like the sources part of the identity.

    Raises:
        UserError: a file is another one by now, or gives nothing to train on.
    """
    out, items = Path(out_dir), (min_rubric_items, max_rubric_items)
    if backbone is None:
        from dynamicrubric.worlds.postcards.prepare import write_world
        from dynamicrubric.worlds.postcards.tokens import save_tokenizer

        write_world(WorldConfig.model_validate(dict(world)), responses_per_set, items, out)
        save_tokenizer(out, vocab_size)
        return
    from dynamicrubric.worlds.language.prepare import write_language

    write_language(
        LanguageConfig.model_validate(dict(world)),
        PretrainedConfig.model_validate(dict(backbone)),
        responses_per_set,
        items,
        out,
        sources,
    )


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
    from dynamicrubric.training.warm import train_warm_start

    train_warm_start(
        role,
        load_prepared(Path(prepared_dir)),
        backbone,
        SupervisedConfig.model_validate(dict(settings)),
        seed=derive_seed(seed, "warm_start", role),
        prepared_dir=Path(prepared_dir),
        out_dir=Path(out_dir),
        work_dir=Path(work_dir),
    )


def sample_responses(
    *, recipe: Mapping[str, Any], policy_dir: str, prepared_dir: str, out_dir: str
) -> None:
    """Sample one response set for each training prompt from a policy."""
    from dynamicrubric.engines.models import Models

    cell = parse_recipe(recipe)
    prepared = load_prepared(Path(prepared_dir))
    sets = sample_sets(
        Models(prepared.base).engine(Path(policy_dir)),
        prepared,
        "train",
        cell,
        1,
        (cell.seed, cell.round, "sample"),
    )
    write_sets(sets, Path(out_dir) / "responses.parquet")


def train_generator(
    *,
    recipe: Mapping[str, Any],
    generator_dir: str,
    responses_dir: str,
    prepared_dir: str,
    out_dir: str,
    work_dir: str,
    checkpoint_every_steps: int,
    rows_per_pass: int = 0,
) -> None:
    """Train the generator with GRPO; a static one then writes its rubrics once and keeps them."""
    from dynamicrubric.engines.models import Models
    from dynamicrubric.training import processes
    from dynamicrubric.training.generator import GeneratorRollout
    from dynamicrubric.training.grpo import train_grpo

    cell = parse_recipe(recipe)
    training = cell.generator_training
    prepared = load_prepared(Path(prepared_dir))
    models = Models(prepared.base)
    if training is not None:
        sets = training_sets(cell, prepared, Path(responses_dir))
        rollout = GeneratorRollout(
            sets=sets,
            anchors=anchors_of(cell, prepared),
            judging=judging_of(cell, training, prepared.world, models),
            sees_responses=cell.rubrics.evaluator == "dynamic",
            sampling=cell.rubrics.sampling,
            seed_name=(cell.seed, cell.round, "train_generator"),
        )
        weights = {"r_disc": training.objective.disc, "r_anchor": training.objective.anchor}
        settings = grpo_settings(
            training,
            rollout,
            group_size=training.group_size,
            reward_weights=weights,
            checkpoint_every_steps=checkpoint_every_steps,
            rows_per_pass=rows_per_pass,
        )
        train_grpo(
            Path(generator_dir),
            list(sets),
            rollout,
            settings,
            out_dir=Path(out_dir),
            work_dir=Path(work_dir),
            models=models,
        )
        generator_dir = out_dir
    if cell.rubrics.evaluator == "static" and processes.is_first():
        keep_rubrics(cell, Path(generator_dir), prepared, models, Path(out_dir))


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
    rows_per_pass: int = 0,
) -> None:
    """Train the policy with GRPO on its evaluator's scores, an oracle's on the true quality."""
    from dynamicrubric.engines.models import Models
    from dynamicrubric.training.grpo import train_grpo

    cell = parse_recipe(recipe)
    training = cell.policy_training
    assert training is not None, "round 0 trains nothing"
    prepared = load_prepared(Path(prepared_dir))
    models = Models(prepared.base)
    rollout = policy_rollout(cell, training, prepared, Path(generator_dir), cell_hash, models)
    settings = grpo_settings(
        training,
        rollout,
        group_size=cell.responses_per_set,
        reward_weights={"true_quality" if cell.rubrics.evaluator == "oracle" else "score": 1.0},
        checkpoint_every_steps=checkpoint_every_steps,
        rows_per_pass=rows_per_pass,
    )
    train_grpo(
        Path(policy_dir),
        list(prepared.prompts["train"]),
        rollout,
        settings,
        out_dir=Path(out_dir),
        work_dir=Path(work_dir),
        models=models,
    )


def evaluate_round(
    *,
    recipe: Mapping[str, Any],
    policy_dir: str,
    generator_dir: str,
    start_policy_dir: str,
    prepared_dir: str,
    out_dir: str,
    before_dir: str | None = None,
) -> None:
    """Measure policy and generator on held-out prompts; KL is against the start policy P_0.

    With `before_dir`, the evaluation of the round before, the generator is also measured on the
    sets that its policy sampled there: on P_{t-1}, before the update to P_t.
    """
    from dynamicrubric.engines.models import Models
    from dynamicrubric.evaluation import evaluate_sets, evaluate_without_rubrics, measure_sets
    from dynamicrubric.evaluationfiles import read_sets, write_before, write_evaluation

    cell = parse_recipe(recipe)
    prepared = load_prepared(Path(prepared_dir))
    models = Models(prepared.base)
    engine = models.engine(Path(policy_dir))
    seed_name = (cell.seed, cell.round, "evaluate")
    sets = sample_sets(
        engine, prepared, "heldout", cell, cell.evaluation.sets_per_prompt, seed_name
    )
    start = models.load(Path(start_policy_dir))
    sets = with_kl(sets, engine, start, cell.policy_sampling.temperature)
    quality = prepared.world.true_quality
    if cell.rubrics.evaluator == "oracle":
        write_evaluation(evaluate_without_rubrics(sets, quality), Path(out_dir))
        return
    writer = writer_of(
        cell, Path(generator_dir), prepared.world, models, prepared.prompts["heldout"]
    )
    judging = judging_of(cell, cell.evaluation, prepared.world, models)
    evaluation = evaluate_sets(sets, writer, judging, quality, seed_name, prepared.heldout_anchors)
    write_evaluation(evaluation, Path(out_dir))
    if before_dir is not None:
        where = "the held-out sets of the policy before its update"
        # The draws have the names of the round before, as in the G x P grid.
        seed_name = (cell.seed, cell.round - 1, "evaluate")
        sets, known = read_sets(Path(before_dir))
        measured = measure_sets(where, sets, writer, judging, known, seed_name)
        write_before(measured, Path(out_dir))


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
    from dynamicrubric.engines.models import Models
    from dynamicrubric.evaluation import measure_sets
    from dynamicrubric.evaluationfiles import read_sets
    from dynamicrubric.gridfiles import write_grid

    cell = parse_recipe(recipe)
    held_out = {policy: read_sets(Path(folder)) for policy, folder in evaluation_dirs.items()}
    measured = {}
    models = Models()
    world = world_named(POSTCARDS)  # a grid's gaps need true quality, which no other world knows
    for generator, folder in generator_dirs.items():
        writer = dynamic_writer(cell, Path(folder), models)
        for policy, (sets, quality) in held_out.items():
            measured[generator, policy] = measure_sets(
                f"the held-out sets of {policy} under {generator}",
                sets,
                writer,
                judging_of(cell, cell.evaluation, world, models),
                quality,
                (cell.seed, rounds[policy], "evaluate"),
            )
    write_grid(measured, Path(out_dir))
