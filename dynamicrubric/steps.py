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
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS, SCORED
from dynamicrubric.plan import CellRecipe, parse_recipe
from dynamicrubric.scoredparts import measure_scored_cell, train_reward
from dynamicrubric.seeds import derive_seed
from dynamicrubric.stepparts import (
    dynamic_writer,
    engines_of,
    generator_rollout,
    grpo_settings,
    in_orders,
    judging_of,
    keep_rubrics,
    policy_rollout,
    sample_sets,
    trainer_of,
    training_sets,
    with_kl,
    write_sets,
    writer_of,
    writes_when_measured,
)
from dynamicrubric.worlds.base import POSTCARDS, world_named
from dynamicrubric.worlds.prepared import PreparedData, load_prepared

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.evaluation import SampledSet

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
    recompute_activations: bool = False,
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
        recompute_activations=recompute_activations,
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
    rows_per_pass: int = 0,
    recompute_activations: bool = False,
    engines: Places = None,
    snapshot_every_steps: int = 0,
) -> None:
    """Train the generator with GRPO; a static one then writes its rubrics once and keeps them.

    Of an arm with a reward model it is the training of that, which takes the generator's place.
    """
    from dynamicrubric.training import processes
    from dynamicrubric.training.grpo import train_grpo
    from dynamicrubric.training.rollout import billed

    cell = parse_recipe(recipe)
    training, start = cell.generator_training, Path(generator_dir)
    prepared = load_prepared(Path(prepared_dir))
    with engines_of(prepared, engines) as opened:
        if cell.reward_training is not None:
            train_reward(
                cell,
                Path(generator_dir),
                prepared,
                opened,
                out_dir=Path(out_dir),
                work_dir=Path(work_dir),
                checkpoint_every_steps=checkpoint_every_steps,
                recompute_activations=recompute_activations,
            )
            return
        if cell.rubrics.evaluator in KEEPS_RUBRICS:
            written = cell.rubrics
            opened.make_room(written.engine, Path(generator_dir), constrained=written.constrained)
        if training is not None:
            sets = training_sets(cell, prepared, Path(responses_dir))
            rollout = generator_rollout(cell, training, prepared, sets, opened)
            settings = grpo_settings(
                training,
                rollout,
                group_size=training.group_size,
                reward_weights=training.objective.weights,
                checkpoint_every_steps=checkpoint_every_steps,
                rows_per_pass=rows_per_pass,
                recompute_activations=recompute_activations,
                snapshot_every_steps=snapshot_every_steps,
            )
            train_grpo(
                Path(generator_dir),
                list(sets),
                billed(rollout, opened.spent),
                settings,
                out_dir=Path(out_dir),
                work_dir=Path(work_dir),
                models=opened.models,
            )
            generator_dir = out_dir
        if processes.is_first():
            if training is not None:
                opened.note(trainer_of("generator", start, opened))
            if cell.rubrics.evaluator in KEEPS_RUBRICS:
                keep_rubrics(cell, Path(generator_dir), prepared, opened, Path(out_dir))
            opened.write(Path(out_dir), with_cost=training is None)


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
    recompute_activations: bool = False,
    engines: Places = None,
) -> None:
    """Train the policy with GRPO on its evaluator's scores, an oracle's on the true quality."""
    from dynamicrubric.training import processes
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
            rows_per_pass=rows_per_pass,
            recompute_activations=recompute_activations,
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
        if processes.is_first():
            opened.note(trainer_of("policy", Path(policy_dir), opened))
            opened.write(Path(out_dir), with_cost=False)


def evaluate_round(
    *,
    recipe: Mapping[str, Any],
    policy_dir: str,
    generator_dir: str,
    start_policy_dir: str,
    prepared_dir: str,
    out_dir: str,
    before_dir: str | None = None,
    engines: Places = None,
) -> None:
    """Measure policy and generator on held-out prompts; KL is against the start policy P_0.

    With `before_dir`, the evaluation of the round before, the generator is also measured on the
    sets that its policy sampled there: on P_{t-1}, before the update to P_t.
    """
    cell = parse_recipe(recipe)
    prepared = load_prepared(Path(prepared_dir))
    with engines_of(prepared, engines) as opened:
        if writes_when_measured(cell):  # or the policy's vLLM child could not serve the generator
            written = cell.rubrics
            opened.make_room(written.engine, Path(generator_dir), constrained=written.constrained)
        sets = _heldout_sets(cell, prepared, Path(policy_dir), Path(start_policy_dir), opened)
        before = None if before_dir is None else Path(before_dir)
        _measure(cell, prepared, sets, Path(generator_dir), before, opened, Path(out_dir))
        opened.write(Path(out_dir), with_cost=True)


def _heldout_sets(
    cell: CellRecipe,
    prepared: PreparedData,
    policy_dir: Path,
    start_policy_dir: Path,
    engines: Engines,
) -> list[SampledSet]:
    policy = engines.models.engine(policy_dir)  # KL is measured in this process, whatever samples
    sampler = engines.sampler("policy", cell.policy_engine, policy_dir, policy)
    seed_name = (cell.seed, cell.round, "evaluate")
    per_prompt = cell.evaluation.sets_per_prompt
    sets = sample_sets(sampler, prepared, "heldout", cell, per_prompt, seed_name)
    start = engines.models.load(start_policy_dir)
    return with_kl(sets, policy, start, cell.policy_sampling.temperature)


def _measure(
    cell: CellRecipe,
    prepared: PreparedData,
    sets: Sequence[SampledSet],
    generator_dir: Path,
    before_dir: Path | None,
    engines: Engines,
    out_dir: Path,
) -> None:
    from dynamicrubric.evaluation import evaluate_sets, evaluate_without_rubrics, measure_sets
    from dynamicrubric.evaluationfiles import read_sets, write_before, write_evaluation

    quality = prepared.world.true_quality
    if cell.rubrics.evaluator == "oracle":
        write_evaluation(evaluate_without_rubrics(sets, quality), out_dir)
        return
    if cell.rubrics.evaluator in SCORED:
        measure_scored_cell(cell, prepared, sets, generator_dir, before_dir, engines, out_dir)
        return
    writer = writer_of(cell, generator_dir, prepared.world, engines, prepared.prompts["heldout"])
    judging = judging_of(cell, cell.evaluation, prepared.world, engines)
    writer = in_orders(writer, cell, judging)
    seed_name = (cell.seed, cell.round, "evaluate")
    evaluation = evaluate_sets(sets, writer, judging, quality, seed_name, prepared.heldout_anchors)
    write_evaluation(evaluation, out_dir)
    if before_dir is not None:
        where = "the held-out sets of the policy before its update"
        # The draws have the names of the round before, as in the G x P grid.
        seed_name = (cell.seed, cell.round - 1, "evaluate")
        sets, known = read_sets(before_dir)
        write_before(measure_sets(where, sets, writer, judging, known, seed_name), out_dir)


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
    from dynamicrubric.evaluationfiles import read_sets
    from dynamicrubric.gridfiles import write_grid

    cell = parse_recipe(recipe)
    held_out = {policy: read_sets(Path(folder)) for policy, folder in evaluation_dirs.items()}
    measured = {}
    world = world_named(POSTCARDS)  # a grid's gaps need true quality, which no other world knows
    with engines_of(None, engines) as opened:
        for generator, folder in generator_dirs.items():
            writer = dynamic_writer(cell, Path(folder), opened)
            for policy, (sets, quality) in held_out.items():
                judging = judging_of(cell, cell.evaluation, world, opened)
                measured[generator, policy] = measure_sets(
                    f"the held-out sets of {policy} under {generator}",
                    sets,
                    in_orders(writer, cell, judging),
                    judging,
                    quality,
                    (cell.seed, rounds[policy], "evaluate"),
                )
        opened.write(Path(out_dir), with_cost=True)
    write_grid(measured, Path(out_dir))


def audit_checkpoints(
    *,
    policies: Sequence[Mapping[str, Any]],
    checkpoints: Sequence[Mapping[str, Any]],
    world: Mapping[str, Any],
    prepared_dir: str,
    out_dir: str,
    engines: Places = None,
) -> None:
    """Measure generators on the held-out sets of the policy that each was trained beside.

    Args:
        policies: `name`, `round` and `sets` of each policy.
        checkpoints: `audit.measure.Checkpoint` as values, each with its policy's name.
        world: the world's settings, of which the held-out anchor lists are made.
        prepared_dir: the prepared data.
        out_dir: where the measurements go.
        engines: where engines run.
    """
    from dynamicrubric.audit.measure import Checkpoint, measure_checkpoints

    measure_checkpoints(
        [dict(one) for one in policies],
        [Checkpoint.of(one) for one in checkpoints],
        WorldConfig.model_validate(dict(world)),
        Path(prepared_dir),
        Path(out_dir),
        engines,
    )


def probe_evaluators(
    *,
    cells: Sequence[Mapping[str, Any]],
    attacks: Sequence[str],
    sets_per_prompt: int,
    gold_judge: Mapping[str, Any] | None,
    prepared_dir: str,
    out_dir: str,
    engines: Places = None,
) -> None:
    """Attack the evaluators of some cells, and compare each with what is true of its policy.

    Args:
        cells: each cell's key, recipe, generator_dir, evaluation_dir, and the evaluations of the
            older policies that its own is compared with, by reference.
        attacks: names of the attacks; none: all.
        sets_per_prompt: held-out sets that are attacked for each prompt.
        gold_judge: who says what is good where nobody knows it.
        prepared_dir: the world.
        out_dir: where the tables go.
        engines: where engines run.
    """
    from dynamicrubric.probes.step import probe_cells

    prepared = load_prepared(Path(prepared_dir))
    with engines_of(prepared, engines) as opened:
        probe_cells(cells, attacks, sets_per_prompt, gold_judge, prepared, opened, Path(out_dir))
        opened.write(Path(out_dir), with_cost=True)


def watch_course(
    *,
    cell: Mapping[str, Any],
    gold_judge: Mapping[str, Any] | None,
    prepared_dir: str,
    out_dir: str,
    engines: Places = None,
) -> None:
    """Compare a round's policy with that of the round before under the evaluator of the round.

    Args:
        cell: as in `probe_evaluators`.
        gold_judge: likewise.
        prepared_dir: the world.
        out_dir: where the table goes.
        engines: where engines run.
    """
    from dynamicrubric.probes.step import watch_cell

    prepared = load_prepared(Path(prepared_dir))
    with engines_of(prepared, engines) as opened:
        watch_cell(cell, gold_judge, prepared, opened, Path(out_dir))
        opened.write(Path(out_dir), with_cost=True)
