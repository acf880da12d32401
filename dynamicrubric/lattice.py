"""The lattice: arms as paths through cells, equal recipe prefixes as one cell."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dynamicrubric.arms import AuditConfig
from dynamicrubric.cells import (
    LIMITS,
    MEASUREMENT,
    WARM_DIR,
    Cell,
    CellRecipe,
    digest,
    without,
)
from dynamicrubric.config import BackboneConfig, Config, LanguageConfig, resolve_arm
from dynamicrubric.errors import UserError
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS, RATED, SCORED
from dynamicrubric.prompts.roles import prompt_texts_hash
from dynamicrubric.rounds import cell_recipe
from dynamicrubric.versions import STEP_VERSIONS
from dynamicrubric.worlds.base import POSTCARDS
from dynamicrubric.worlds.language.sources import fingerprints

ROLES: Final = ("policy", "generator")
MOST_NAMED: Final = 20
"""Cells that an error names; of more it names the nearest."""


@dataclass(frozen=True)
class Plan:
    """The lattice.

    Attributes:
        starts: round 0 cells by key: P_0 measured by an untrained evaluator.
        cells: training cells by key, every cell after the one it starts from.
        paths: for each arm and seed the cell keys of rounds 0, 1, ..., T.
        shared: identity of the steps that every cell starts from: `prepare`, and `warm_start` by
            role.
        audit: which generators the audit of the bound measures; None if there is none.
        probe: what is done to hack its evaluators, None if nothing.
    """

    starts: dict[str, Cell]
    cells: dict[str, Cell]
    paths: dict[tuple[str, int], tuple[str, ...]]
    shared: dict[str, Any]
    audit: AuditConfig | None = None
    probe: dict[str, Any] | None = None

    def cell(self, key: str) -> Cell:
        """Return a cell of any round by key, or raise a UserError that names those there are.

        Of a large plan it names those that are near.
        """
        found = self.starts.get(key) or self.cells.get(key)
        if found is None:
            known = [*self.starts, *self.cells]
            near = difflib.get_close_matches(key, known, n=4, cutoff=0.5) or known[:4]
            raise UserError(
                doing="looking up a cell",
                got=repr(key),
                expected=f"one of {', '.join(known)}"
                if len(known) <= MOST_NAMED
                else f"one of the plan's {len(known)} cells, such as {', '.join(near)}",
                remedy="run `dynamicrubric plan` if params.yaml was changed",
            )
        return found

    def arms_of(self, key: str) -> tuple[str, ...]:
        """Return the names of the arms whose path holds the cell."""
        return tuple(dict.fromkeys(arm for (arm, _), keys in self.paths.items() if key in keys))

    @property
    def num_arm_rounds(self) -> int:
        """Training rounds if no cell were shared: arms x seeds x rounds."""
        return sum(len(keys) - 1 for keys in self.paths.values())


class _Node(NamedTuple):
    """One round of an arm and seed before it has a name."""

    digest: str
    trained: str
    recipe: CellRecipe


def expand(config: Config) -> Plan:
    """Expand arms x their seeds x their rounds into cells; equal recipe prefixes are one cell.

    A cell's key has the name of the first arm of params.yaml whose path goes through it, also where
    that arm is not run: which arms are run changes no name.

    Raises:
        UserError: two different recipes got one id or one key, or two arms do the same.
    """
    _check_arms_differ(config)
    shared = _shared(config)
    walks = _walks(config, _base_hash(shared))
    names: dict[str, str] = {}
    for (arm, seed), nodes in walks.items():
        for number, node in enumerate(nodes):
            names.setdefault(node.digest, f"{arm}-s{seed}-r{number}")
    cells: dict[str, Cell] = {}
    paths: dict[tuple[str, int], tuple[str, ...]] = {}
    for run in config.study.runs:
        for seed in run.seeds:
            path = list(_named(walks[(run.arm, seed)], names))
            cells |= {node.digest: cell for node, cell in path if node.digest not in cells}
            paths[(run.arm, seed)] = tuple(cell.key for _, cell in path)
    _check_unique(list(cells.values()))
    return Plan(
        starts={cell.key: cell for cell in cells.values() if cell.recipe.round == 0},
        cells={cell.key: cell for cell in cells.values() if cell.recipe.round > 0},
        paths=paths,
        shared=shared,
        audit=config.study.audit,
        probe=None if config.probe is None else config.probe.model_dump(mode="json"),
    )


def _walks(config: Config, base_hash: str) -> dict[tuple[str, int], list[_Node]]:
    """Walk every arm with every seed that is run, those that are not run as far as any that is."""
    runs = {run.arm: run for run in config.study.runs}
    seeds = dict.fromkeys(seed for run in runs.values() for seed in run.seeds)
    most = max(run.rounds for run in runs.values())
    return {
        (arm, seed): list(
            _walk(config, arm, seed, runs[arm].rounds if arm in runs else most, base_hash)
        )
        for arm in config.study.arms
        for seed in seeds
    }


def _walk(config: Config, arm: str, seed: int, rounds: int, base_hash: str) -> Iterator[_Node]:
    """Walk one arm and seed from round 0 to T."""
    arm_recipe, before = resolve_arm(config, arm), base_hash
    for number in range(rounds + 1):
        recipe = cell_recipe(arm_recipe, config.evaluation, seed, number, rounds)
        document = recipe.model_dump(mode="json")
        trained = digest({"before": before, "recipe": without(document, LIMITS | MEASUREMENT)})
        yield _Node(digest({"before": before, "recipe": document}), trained, recipe)
        if number > 0:  # round 0 trains nothing: round 1 starts from the warm start itself
            before = trained


def _named(nodes: list[_Node], names: dict[str, str]) -> Iterator[tuple[_Node, Cell]]:
    """Make the cells of a path, each starting from the training cell before it."""
    prev, before = WARM_DIR, None
    for node in nodes:
        key = names[node.digest]
        cell = Cell(
            key=key,
            id=f"{key}-{node.digest[:8]}",
            training_hash=node.trained[:8],
            prev=prev,
            before=before,
            recipe=node.recipe,
        )
        yield node, cell
        before = cell.directory
        if node.recipe.round > 0:
            prev = cell.directory


def _shared(config: Config) -> dict[str, Any]:
    """Return what the prepared data and the two warm starts are made from."""
    backbone = config.backbone.model_dump(mode="json")
    return {
        "prepare": {
            "world": config.world.model_dump(mode="json"),
            **_made_from(config),
            "responses_per_set": config.recipe.responses_per_set,
            "min_rubric_items": config.recipe.min_rubric_items,
            "max_rubric_items": config.recipe.max_rubric_items,
            "version": STEP_VERSIONS["prepare"],
        },
        "warm_start": {
            role: {
                "backbone": backbone,
                "settings": getattr(config.warm_start, role).model_dump(mode="json"),
                "seed": config.world.seed,
                "version": STEP_VERSIONS["warm_start"],
            }
            for role in ROLES
        },
    }


def _made_from(config: Config) -> dict[str, Any]:
    """Return what the prepared data's models are made from: a vocabulary, or a pretrained base.

    Raises:
        UserError: a file that the config names is not there.
    """
    world, backbone = config.world, config.backbone
    if isinstance(backbone, BackboneConfig):
        return {"vocab_size": backbone.vocab_size}
    assert isinstance(world, LanguageConfig), "the config checks it"
    return {
        "backbone": backbone.model_dump(mode="json"),
        "sources": fingerprints(world, backbone),
        "prompts": prompt_texts_hash(),
    }


def _base_hash(shared: dict[str, Any]) -> str:
    """Return the hash that every path starts from.

    Label noise was the world's before it was the recipe's, and none in every finished study: said
    as it was then, so that finished cells keep their ids.
    """
    prepare = shared["prepare"]
    if prepare["world"]["name"] != POSTCARDS:
        return digest(shared)
    world = {**prepare["world"], "anchor_swap_rate": 0.0}
    return digest({**shared, "prepare": {**prepare, "world": world}})


def _check_arms_differ(config: Config) -> None:
    """Refuse arms whose recipes differ only in keys that change no result.

    Two rounds are looked at, however many there are: in a study of one round `fresh` and `stale`
    are rightly one path.
    """
    seen: dict[str, str] = {}
    planned = {run.arm: run.rounds for run in config.study.runs}
    for arm in config.study.arms:
        recipe = resolve_arm(config, arm)
        rounds = [
            cell_recipe(recipe, config.evaluation, 0, number, planned.get(arm, config.study.rounds))
            for number in (1, 2)
        ]
        text = json.dumps([_effective(one) for one in rounds], sort_keys=True)
        if seen.setdefault(text, arm) != arm:
            raise UserError(
                doing="planning the study",
                got=f"study.arms.{arm}, which trains and measures exactly what {seen[text]!r} does",
                expected="each arm to differ in a key that changes a result",
                remedy="remove one of them, or change what its rounds do (limits change no result, "
                "and update: none ignores the other keys of generator, for example)",
            )


def _effective(recipe: CellRecipe) -> dict[str, Any]:
    """Return of a recipe what can change a result: limits cannot, nor what its evaluator ignores.

    For comparing arms alone: an identity holds the whole recipe.
    """
    document = without(recipe.model_dump(mode="json"), LIMITS)
    if recipe.generator_training is not None:  # advantages are normalised: only the ratio counts
        objective = recipe.generator_training.objective
        whole = sum(objective.weights.values())
        shares = {name: round(part / whole, 12) for name, part in objective.weights.items()}
        others = without(objective.model_dump(mode="json"), {"disc", "anchor", "gap"})
        document["generator_training"]["objective"] = others | shares
    evaluator = recipe.rubrics.evaluator
    if evaluator == "oracle":
        return document | {"rubrics": evaluator, "verifier": None}
    if evaluator == "rule_based":
        return document | {"rubrics": without(document["rubrics"], {"sampling", "min_items"})}
    if evaluator in SCORED - RATED:
        return document | {"rubrics": [evaluator, recipe.rubrics.reward_model], "verifier": None}
    if evaluator in RATED - KEEPS_RUBRICS:
        return document | {"rubrics": evaluator}
    return document


def _check_unique(cells: list[Cell]) -> None:
    for kind in ("id", "key"):
        for name, count in Counter(getattr(cell, kind) for cell in cells).items():
            if count > 1:
                raise UserError(
                    doing="planning the study",
                    got=f"two different recipes with the cell {kind} {name!r}",
                    expected="one recipe for each cell",
                    remedy="rename one of the arms in params.yaml",
                )
