"""The steps of a study, as the child processes run them: folders in, one folder out.

Each function computes and writes its artefact's files; where it runs, its record and its lock are
the launcher's business. Arguments are JSON, so that a step can be started from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dynamicrubric.config import (
    LanguageConfig,
    PretrainedConfig,
    SupervisedConfig,
    WorldConfig,
)
from dynamicrubric.plan import CellRecipe, GeneratorTraining, parse_recipe
from dynamicrubric.seeds import derive_seed
from dynamicrubric.stepparts import (
    anchors_of,
    dynamic_writer,
    engines_of,
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
from dynamicrubric.worlds.prepared import PreparedData, load_prepared

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.evaluation import Evaluation

Places = Mapping[str, Any] | None
"""Where a step's engines run (`engines.places`): like all places no part of what it makes."""
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
    *,
    recipe: Mapping[str, Any],
    policy_dir: str,
    prepared_dir: str,
    out_dir: str,
    engines: Places = None,
) -> None:
    """Sample one response set for each training prompt from a policy."""
    cell = parse_recipe(recipe)
    prepared = load_prepared(Path(prepared_dir))
    with engines_of(prepared, engines) as opened:
        sampler = opened.sampler("policy", cell.policy_engine, Path(policy_dir))
        seed_name = (cell.seed, cell.round, "sample")
        sets = sample_sets(sampler, prepared, "train", cell, 1, seed_name)
        write_sets(sets, Path(out_dir) / "responses.parquet")
        opened.write(Path(out_dir), with_cost=True)


def train_generator(
    *,
    recipe: Mapping[str, Any],
    generator_dir: str,
    responses_dir: str,
    prepared_dir: str,
    out_dir: str,
    work_dir: str,
    checkpoint_every_steps: int,
    engines: Places = None,
) -> None:
    """Train the generator with GRPO; a static one then writes its rubrics once and keeps them."""
    cell = parse_recipe(recipe)
    prepared = load_prepared(Path(prepared_dir))
    with engines_of(prepared, engines) as opened:
        if cell.generator_training is not None:
            _train_generator(
                cell,
                cell.generator_training,
                prepared,
                Path(generator_dir),
                Path(responses_dir),
                opened,
                out_dir=Path(out_dir),
                work_dir=Path(work_dir),
                checkpoint_every_steps=checkpoint_every_steps,
            )
            generator_dir = out_dir
        if cell.rubrics.evaluator == "static":
            keep_rubrics(cell, Path(generator_dir), prepared, opened, Path(out_dir))
        opened.write(Path(out_dir), with_cost=False)


def _train_generator(
    cell: CellRecipe,
    training: GeneratorTraining,
    prepared: PreparedData,
    generator_dir: Path,
    responses_dir: Path,
    engines: Engines,
    **where: Any,  # noqa: ANN401
) -> None:
    from dynamicrubric.training.generator import GeneratorRollout
    from dynamicrubric.training.grpo import train_grpo
    from dynamicrubric.training.rollout import billed

    sets = training_sets(cell, prepared, responses_dir)
    rollout = GeneratorRollout(
        sets=sets,
        anchors=anchors_of(cell, prepared),
        judging=judging_of(cell, training, prepared.world, engines),
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
        checkpoint_every_steps=where.pop("checkpoint_every_steps"),
    )
    train_grpo(
        generator_dir,
        list(sets),
        billed(rollout, engines.spent),
        settings,
        models=engines.models,
        **where,
    )


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
    engines: Places = None,
) -> None:
    """Train the policy with GRPO on its evaluator's scores, an oracle's on the true quality."""
    from dynamicrubric.training.grpo import train_grpo
    from dynamicrubric.training.rollout import billed

    cell = parse_recipe(recipe)
    training = cell.policy_training
    assert training is not None, "round 0 trains nothing"
    prepared = load_prepared(Path(prepared_dir))
    with engines_of(prepared, engines) as opened:
        rollout = policy_rollout(cell, training, prepared, Path(generator_dir), cell_hash, opened)
        oracle = cell.rubrics.evaluator == "oracle"
        settings = grpo_settings(
            training,
            rollout,
            group_size=cell.responses_per_set,
            reward_weights={"true_quality" if oracle else "score": 1.0},
            checkpoint_every_steps=checkpoint_every_steps,
        )
        train_grpo(
            Path(policy_dir),
            list(prepared.prompts["train"]),
            billed(rollout, opened.spent),
            settings,
            out_dir=Path(out_dir),
            work_dir=Path(work_dir),
            models=opened.models,
        )
        opened.write(Path(out_dir), with_cost=False)


def evaluate_round(
    *,
    recipe: Mapping[str, Any],
    policy_dir: str,
    generator_dir: str,
    start_policy_dir: str,
    prepared_dir: str,
    out_dir: str,
    engines: Places = None,
) -> None:
    """Measure policy and generator on held-out prompts; KL is against the start policy P_0."""
    from dynamicrubric.evaluationfiles import write_evaluation

    cell = parse_recipe(recipe)
    prepared = load_prepared(Path(prepared_dir))
    with engines_of(prepared, engines) as opened:
        evaluation = _evaluate(
            cell, prepared, Path(policy_dir), Path(generator_dir), Path(start_policy_dir), opened
        )
        write_evaluation(evaluation, Path(out_dir))
        opened.write(Path(out_dir), with_cost=True)


def _evaluate(
    cell: CellRecipe,
    prepared: PreparedData,
    policy_dir: Path,
    generator_dir: Path,
    start_policy_dir: Path,
    engines: Engines,
) -> Evaluation:
    from dynamicrubric.evaluation import evaluate_sets, evaluate_without_rubrics

    policy = engines.models.engine(policy_dir)
    seed_name = (cell.seed, cell.round, "evaluate")
    sets = sample_sets(
        engines.sampler("policy", cell.policy_engine, policy_dir, policy),
        prepared,
        "heldout",
        cell,
        cell.evaluation.sets_per_prompt,
        seed_name,
    )
    before = engines.models.load(start_policy_dir)
    sets = with_kl(sets, policy, before, cell.policy_sampling.temperature)
    quality = prepared.world.true_quality
    if cell.rubrics.evaluator == "oracle":
        return evaluate_without_rubrics(sets, quality)
    return evaluate_sets(
        sets,
        writer_of(cell, generator_dir, prepared.world, engines, prepared.prompts["heldout"]),
        judging_of(cell, cell.evaluation, prepared.world, engines),
        quality,
        seed_name,
        prepared.heldout_anchors,
    )


def evaluate_grid(
    *,
    recipe: Mapping[str, Any],
    rounds: Mapping[str, int],
    evaluation_dirs: Mapping[str, str],
    generator_dirs: Mapping[str, str],
    out_dir: str,
    engines: Places = None,
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
        engines: where engines run.
    """
    from dynamicrubric.evaluation import measure_sets
    from dynamicrubric.gridfiles import read_sets, write_grid

    cell = parse_recipe(recipe)
    held_out = {policy: read_sets(Path(folder)) for policy, folder in evaluation_dirs.items()}
    measured = {}
    world = world_named(POSTCARDS)  # a grid's gaps need true quality, which no other world knows
    with engines_of(None, engines) as opened:
        for generator, folder in generator_dirs.items():
            writer = dynamic_writer(cell, Path(folder), opened)
            for policy, (sets, quality) in held_out.items():
                measured[generator, policy] = measure_sets(
                    f"the held-out sets of {policy} under {generator}",
                    sets,
                    writer,
                    judging_of(cell, cell.evaluation, world, opened),
                    quality,
                    (cell.seed, rounds[policy], "evaluate"),
                )
    write_grid(measured, Path(out_dir))
