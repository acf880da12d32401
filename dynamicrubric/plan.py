"""The plan: params.yaml expanded into the lattice of cells, written to cells.yaml and cells.json.

A cell is one round of one seed: a generator update and a policy update with a recipe. An arm is a
path through the cells; arms with an equal recipe prefix share its cells, each trained once. DVC
runs one stage per cell (`foreach` over cells.json) and each stage depends on its own entry alone.

Cell keys (`coevolved-s1-r2`: the first arm of params.yaml on that path, seed, round) are stable, so
that metrics and parameters of two experiments can be compared by name. The cell id is the key plus
a short hash of the full recipe, which changes with any number that the cell's results depend on.

The parts: `cells` (what a cell is), `rounds` (what a round of an arm computes), `lattice` (which
cells there are), `planfile` (the two files).
"""

from dynamicrubric.cells import (
    RUNS_DIR,
    WARM_DIR,
    Cell,
    CellRecipe,
    EvaluationSettings,
    GeneratorTraining,
    PolicyTraining,
    ResponseSource,
    RewardTraining,
    RubricSettings,
    engine_identity,
    identity_of,
    parse_recipe,
)
from dynamicrubric.lattice import ROLES, Plan, expand
from dynamicrubric.planfile import (
    differing,
    json_path,
    load_plan,
    plan_document,
    read_structure,
    stage_structure,
    write_plan,
)

__all__ = [
    "ROLES",
    "RUNS_DIR",
    "WARM_DIR",
    "Cell",
    "CellRecipe",
    "EvaluationSettings",
    "GeneratorTraining",
    "Plan",
    "PolicyTraining",
    "ResponseSource",
    "RewardTraining",
    "RubricSettings",
    "differing",
    "engine_identity",
    "expand",
    "identity_of",
    "json_path",
    "load_plan",
    "parse_recipe",
    "plan_document",
    "read_structure",
    "stage_structure",
    "write_plan",
]
