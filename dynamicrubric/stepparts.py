"""What steps are put together from: a cell's recipe turned into verifiers, writers and rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamicrubric.enginesettings import OpenAI
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS, SCORED
from dynamicrubric.plan import (
    CellRecipe,
    EvaluationSettings,
    GeneratorTraining,
    PolicyTraining,
)
from dynamicrubric.prompts.roles import generator_messages
from dynamicrubric.rubrics import render_rubric, rubric_schema
from dynamicrubric.scoredparts import scored_rollout
from dynamicrubric.seeds import derive_seed
from dynamicrubric.worlds.base import World
from dynamicrubric.worlds.noise import noisy_anchors, shuffled_anchors, spread_over
from dynamicrubric.worlds.prepared import PreparedData, Split

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dynamicrubric.engines.choice import Engines, Sampler
    from dynamicrubric.engines.identity import EngineIdentity
    from dynamicrubric.engines.transformers import TransformersEngine
    from dynamicrubric.evaluation import SampledSet
    from dynamicrubric.evaluators.judging import Judging, ResponseSet
    from dynamicrubric.evaluators.writers import DynamicWriter, RubricWriter
    from dynamicrubric.training.generator import GeneratorRollout
    from dynamicrubric.training.grpo import GrpoSettings
    from dynamicrubric.training.oracle import OracleRollout
    from dynamicrubric.training.policy import SetRollout


def engines_of(prepared: PreparedData | None, places: Mapping[str, Any] | None) -> Engines:
    """Return a step's engines; use them in a `with` statement.

    Args:
        prepared: data with the base that all roles share; None where checkpoints are whole models.
        places: `engines.places.EnginePlaces` as values; None: this process alone.
    """
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.engines.models import Models
    from dynamicrubric.engines.places import EnginePlaces

    models = Models(prepared.base if prepared else None)
    return Engines(models, EnginePlaces.model_validate(dict(places or {})))


def generator_rollout(
    cell: CellRecipe,
    training: GeneratorTraining,
    prepared: PreparedData,
    sets: Mapping[str, ResponseSet],
    engines: Engines,
) -> GeneratorRollout:
    """Return what samples and rewards rubrics for the response sets of a training."""
    from dynamicrubric.training.gap import GapReward, reference_pairs
    from dynamicrubric.training.generator import GeneratorRollout

    objective, gap = training.objective, None
    if objective.gap and objective.gap_order == "anchors":
        gap = GapReward()
    elif objective.gap:
        quality = known_quality(prepared.world)
        gap = GapReward(reference_pairs(sets, quality, objective.gap_noise, cell.seed))
    return GeneratorRollout(
        sets=sets,
        anchors=anchors_of(cell, prepared),
        judging=judging_of(cell, training, prepared.world, engines),
        sees_responses=cell.rubrics.evaluator == "dynamic",
        sampling=cell.rubrics.sampling,
        seed_name=(cell.seed, cell.round, "train_generator"),
        gap=gap,
        single_penalty=objective.single_penalty,
    )


def policy_rollout(
    cell: CellRecipe,
    training: PolicyTraining,
    prepared: PreparedData,
    generator_dir: Path,
    cell_hash: str,
    engines: Engines,
) -> SetRollout | OracleRollout:
    """Return what samples and rewards the policy: an evaluator's scores, or the true quality."""
    from dynamicrubric.training.oracle import OracleRollout
    from dynamicrubric.training.policy import PolicyRollout

    if cell.rubrics.evaluator in SCORED:
        return scored_rollout(cell, training, prepared, generator_dir, cell_hash, engines)
    prompts = prepared.prompts["train"]
    seed_name = (cell.seed, cell.round, "train_policy")
    if cell.rubrics.evaluator == "oracle":
        return OracleRollout(
            prompts=prompts,
            quality=known_quality(prepared.world),
            lowest=lowest_quality(prepared.world),
            sampling=cell.policy_sampling,
            seed_name=seed_name,
            cell_hash=cell_hash,
        )
    # The writer first: a vLLM child that is started for it has room for its adapter, and serves the
    # verifier too; one that is started for the verifier has none.
    writer = writer_of(cell, generator_dir, prepared.world, engines)
    judging = judging_of(cell, training, prepared.world, engines)
    return PolicyRollout(
        prompts=prompts,
        writer=in_orders(writer, cell, judging),
        judging=judging,
        sampling=cell.policy_sampling,
        seed_name=seed_name,
        cell_hash=cell_hash,
        truncated=training.truncated,
    )


def grpo_settings(
    training: GeneratorTraining | PolicyTraining,
    rollout: GeneratorRollout | SetRollout | OracleRollout,
    *,
    group_size: int,
    reward_weights: Mapping[str, float],
    checkpoint_every_steps: int,
    rows_per_pass: int,
    recompute_activations: bool,
    snapshot_every_steps: int = 0,
) -> GrpoSettings:
    """Return a training's numbers; sampling and the draws' name are those of its rollout."""
    from dynamicrubric.training.grpo import GrpoSettings
    from dynamicrubric.training.policy import SetRollout

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
        rows_per_pass=rows_per_pass,
        recompute_activations=recompute_activations,
        snapshot_every_steps=snapshot_every_steps,
        cuts_count=isinstance(rollout, SetRollout) and rollout.truncated == "scored",
    )


def judging_of(
    cell: CellRecipe,
    limits: GeneratorTraining | PolicyTraining | EvaluationSettings,
    world: World,
    engines: Engines,
) -> Judging:
    """Return how the cell's rubrics are read and applied in one of its phases.

    Args:
        cell: the cell, with its verifier's error and failure rates.
        limits: the phase, whose limit on invalid rubrics holds.
        world: whose verifier judges.
        engines: the step's engines, of which a verifier that is a language model is one.
    """
    from dynamicrubric.engines.identity import EngineIdentity
    from dynamicrubric.evaluators.judging import Judging

    if cell.verifier.kind == "programmatic":
        rates = {name: getattr(cell.verifier, name) for name in ("error_rate", "failure_rate")}
        engines.note(EngineIdentity("verifier", f"named:{world.name}", "programmatic", rates))
    return Judging(
        verifier=world.verifier(cell.verifier, engines),
        min_items=cell.rubrics.min_items,
        max_items=cell.rubrics.max_items,
        max_invalid_rate=limits.max_invalid_rate,
        max_unscored_rate=cell.verifier.max_unscored_rate,
        equal_weights=cell.rubrics.weights == "equal",
    )


def trainer_of(role: str, start: Path, engines: Engines) -> EngineIdentity:
    """Return what sampled a training's own rollouts: the model that it trains, by where it began.

    A rollout's weights are the start's after as many updates as its `step` less one.
    """
    weights = "the checkpoint's, after `step` - 1 updates of this training"
    return engines.models.identity(role, start, weights=weights)


def known_quality(world: World) -> Callable[[str, str], float]:
    """Return the true quality of (prompt id, response): an oracle needs it of every response."""

    def quality(prompt_id: str, text: str) -> float:
        known = world.true_quality(prompt_id, text)
        assert known is not None, f"nobody knows true quality in the world {world.name}"
        return known

    return quality


def lowest_quality(world: World) -> float:
    """Return the least true quality there is."""
    lowest = world.lowest_quality
    assert lowest is not None, f"nobody knows true quality in the world {world.name}"
    return lowest


def anchors_of(cell: CellRecipe, prepared: PreparedData) -> dict[str, tuple[str, ...]]:
    """Return the anchor lists as this cell's training reads them, label noise included."""
    training, anchors = cell.generator_training, prepared.anchors
    if training is None:
        return anchors
    if training.anchor_source != "prepared":
        anchors = prepared.world.shifted_anchors(training.anchor_source, anchors)
    if training.num_anchors is not None:
        anchors = {key: spread_over(texts, training.num_anchors) for key, texts in anchors.items()}
    if training.anchor_shuffle_rate:
        anchors = shuffled_anchors(anchors, training.anchor_shuffle_rate, cell.seed)
    if not training.anchor_swap_rate:
        return anchors
    return noisy_anchors(anchors, training.anchor_swap_rate, cell.seed)


def sample_sets(
    sampler: Sampler,
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
            sampler.tokenizer.policy_prompt(prepared.prompts[split][key]),
            derive_seed(*seed_name, key, index, sample),
        )
        for key, index in names
        for sample in range(size)
    ]
    generations = sampler.engine.generate(requests, cell.policy_sampling)
    sets = []
    for place, (key, index) in enumerate(names):
        group = tuple(generations[place * size : (place + 1) * size])
        responses = ResponseSet.of(key, prepared.prompts[split][key], group)
        sets.append(SampledSet(f"{key}/{index}", responses, group, ()))
    return sets


def with_kl(
    sets: Sequence[SampledSet],
    engine: TransformersEngine,
    before: PreTrainedModel,
    temperature: float,
) -> list[SampledSet]:
    """Return sets with each completion's log-probability now less that under an earlier model.

    Both are measured in this process, whatever engine sampled: one instrument for all rounds.
    """
    from dataclasses import replace

    from dynamicrubric.engines.transformers import sequence_logprobs

    render, pad_id = engine.tokenizer.policy_prompt, engine.tokenizer.pad_id
    there = [(s.responses.prompt, g) for s in sets for g in s.generations if not g.failure]
    prompts = [render(prompt) for prompt, _ in there]
    completions = [generation.token_ids for _, generation in there]
    now, start = (
        sequence_logprobs(model, prompts, completions, pad_id, temperature)
        for model in (engine.model, before)
    )
    kl = iter([a - b for a, b in zip(now, start, strict=True)])
    return [
        replace(s, kl=tuple(None if g.failure else next(kl) for g in s.generations)) for s in sets
    ]


def write_sets(sets: Sequence[SampledSet], path: Path) -> None:
    """Write response sets as a table, one row a response; `training_sets` reads it."""
    import pandas as pd

    rows = [
        {
            "set_id": one.set_id,
            "prompt_id": one.responses.prompt_id,
            "sample_index": index,
            "text": generation.text,
            "num_tokens": len(generation.token_ids),
            "finish_reason": generation.finish_reason,
            # A column only where an engine failed: no other table of an engine changes for it.
            **({"failure": generation.failure} if one.responses.failures else {}),
        }
        for one in sets
        for index, generation in enumerate(one.generations)
    ]
    pd.DataFrame(rows).to_parquet(path, index=False)


def training_sets(
    cell: CellRecipe, prepared: PreparedData, responses_dir: Path
) -> dict[str, ResponseSet]:
    """Return the response set of each training row: sampled ones, or the anchor lists."""
    import pandas as pd

    from dynamicrubric.evaluators.judging import ResponseSet

    prompts = prepared.prompts["train"]
    training = cell.generator_training
    assert training is not None
    if training.responses == "anchors":
        anchors = anchors_of(cell, prepared)
        return {key: ResponseSet(key, prompts[key], anchors[key]) for key in prompts}
    table = pd.read_parquet(responses_dir / "responses.parquet")
    sets = {}
    for set_id, unordered in table.groupby("set_id", sort=False):
        rows = unordered.sort_values("sample_index")
        key = str(rows["prompt_id"].iloc[0])
        failed = rows.get("failure", ())
        failures = tuple(reason if isinstance(reason, str) else None for reason in failed)
        sets[str(set_id)] = ResponseSet(key, prompts[key], tuple(rows["text"]), failures)
    return sets


def dynamic_writer(cell: CellRecipe, generator_dir: Path, engines: Engines) -> DynamicWriter:
    """Return the writer that reads each response set, with the generator of a folder.

    A generator that an endpoint serves is another model than the folder's, which nobody trains.
    """
    from dynamicrubric.engines.base import Constrained
    from dynamicrubric.evaluators.writers import DynamicWriter

    rubrics = cell.rubrics
    engine, sampling = rubrics.engine, rubrics.sampling
    if isinstance(engine, OpenAI):
        return DynamicWriter(engines.chat(engine), None, sampling, ask=generator_messages)
    constrained = rubrics.constrained
    sampler = engines.sampler("generator", engine, generator_dir, constrained=constrained)
    render = sampler.tokenizer.generator_prompt
    if not constrained:
        return DynamicWriter(sampler.engine, render, sampling)
    schema = rubric_schema(min_items=rubrics.min_items, max_items=rubrics.max_items)
    return DynamicWriter(Constrained(sampler.engine, schema), render, sampling)


def in_orders(writer: RubricWriter, cell: CellRecipe, judging: Judging) -> RubricWriter:
    """Return the cell's writer as its recipe shows it sets: in one order, or averaged over some."""
    from dynamicrubric.evaluators.orders import OrderAveragedWriter

    orders = cell.rubrics.orders
    return writer if orders == 1 else OrderAveragedWriter(writer, orders, judging.read)


def writer_of(
    cell: CellRecipe,
    generator_dir: Path,
    world: World,
    engines: Engines,
    prompts: Mapping[str, str] | None = None,
) -> RubricWriter:
    """Return the evaluator's rubric writer; hand-written rules are the world's.

    Round 0 of a static evaluator has no kept rubrics yet: they are written here, for `prompts`.
    """
    from dynamicrubric.evaluators.writers import FixedWriter, KeptWriter

    if cell.rubrics.evaluator == "rule_based":
        return FixedWriter(render_rubric(world.rules(cell.rubrics.max_items)))
    if cell.rubrics.evaluator == "dynamic":
        return dynamic_writer(cell, generator_dir, engines)
    if cell.round > 0:
        return KeptWriter.load(generator_dir)
    writer = dynamic_writer(cell, generator_dir, engines)
    return KeptWriter.write_once(prompts or {}, writer, _rubric_seeds(cell, prompts or {}))


def writes_when_measured(cell: CellRecipe) -> bool:
    """Say whether a round's evaluation samples from a generator: kept rubrics are only read.

    A folder that keeps rubrics may hold no checkpoint, and one in a generator's place may hold a
    reward model.
    """
    evaluator = cell.rubrics.evaluator
    return evaluator == "dynamic" or (evaluator in KEEPS_RUBRICS and cell.round == 0)


def _rubric_seeds(cell: CellRecipe, prompts: Mapping[str, str]) -> dict[str, int]:
    return {key: derive_seed(cell.seed, "kept_rubric", key) for key in prompts}


def keep_rubrics(
    cell: CellRecipe, generator_dir: Path, prepared: PreparedData, engines: Engines, out_dir: Path
) -> None:
    """Write a static evaluator's rubrics for all prompts into the generator's artefact."""
    from dynamicrubric.evaluators.writers import KeptWriter

    prompts = prepared.all_prompts
    writer = dynamic_writer(cell, generator_dir, engines)
    KeptWriter.write_once(prompts, writer, _rubric_seeds(cell, prompts)).save(out_dir)
