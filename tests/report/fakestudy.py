"""A study without training: real artefact folders and records around made-up figures."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dynamicrubric.arms import AuditConfig
from dynamicrubric.audit.planned import PlannedAudit, planned_audits
from dynamicrubric.config import Config, Selection, load_config
from dynamicrubric.grid import planned_grids
from dynamicrubric.plan import Cell, Plan, expand
from dynamicrubric.probes.attacks import attacks_of
from dynamicrubric.probes.files import ATTACK_TYPES, COURSE_TYPES
from dynamicrubric.probes.planned import ProbedCell, planned_probes
from dynamicrubric.probesettings import ProbeConfig
from dynamicrubric.report.cellfiles import CELL_FILE, SET_METRICS, find_artefacts
from dynamicrubric.versions import PROBE_VERSIONS, STEP_VERSIONS
from tasks.disk import remove
from tasks.record import BuildDirs, StepRequest, run_step

REPOSITORY = Path(__file__).parents[2]
SLOPES = {"coevolved": 0.10, "stale": 0.09, "frozen": 0.05, "static": 0.02}
SETS, SAMPLES, ITEMS = 2, 3, 3
CRITERION = 'Score > 90% | "quoted" ../x'
GENERATORS = ("G_0", "G_1", "G_2", "G~_2")
LEVELS = {"G_0": 0.0, "G_1": 0.02, "G_2": 0.035, "G~_2": 0.025}
"""Made-up Delta_gap of each generator, beside what the responses give."""
GAP_LOST = 0.04
"""By how much Delta_gap falls when the policy is updated under a generator."""


class FakeStudy:
    """Writes a study's cells under a project folder.

    Attributes:
        root: the project folder.
        config: params.yaml of the repository with the given arms, seeds and rounds.
        plan: its lattice.
    """

    def __init__(
        self,
        root: Path,
        *,
        arms: tuple[str, ...] = ("coevolved", "stale", "frozen", "static"),
        seeds: tuple[int, ...] = (1,),
        rounds: int = 3,
        run: tuple[Selection, ...] | None = None,
        prompts: int = 24,
        steps: int = 4,
        write: bool = True,
        profile: str = "postcards",
        audit: AuditConfig | None = None,
        probe: tuple[str, ...] = (),
    ) -> None:
        self.root = root
        self.prompts = prompts
        self.steps = steps
        self.config = _config(arms, seeds, rounds, run, prompts, steps, profile, audit)
        asked = ProbeConfig(arms=probe) if probe else None
        self.config = self.config.model_copy(update={"probe": asked})
        self.plan: Plan = expand(self.config)
        self.questions = {
            name: arm.question for name, arm in self.config.study.arms.items() if name in arms
        }
        self.root.mkdir(parents=True, exist_ok=True)
        if write:
            for cell in [*self.plan.starts.values(), *self.plan.cells.values()]:
                self.write_cell(cell.key)
            self.write_grids()
            for one in planned_audits(self.plan).values():
                self.write_audit(one)
            self.write_probes()

    def write_bare(self, folder: Path) -> None:
        """Write an artefact with nothing in it that anybody reads."""
        request = StepRequest("prepare", 1, {"folder": folder.name}, {})
        run_step(request, folder, self.root / "work/steps", _warm_generator)

    def write_audit(
        self, audit: PlannedAudit, alter: Callable[[list[dict[str, Any]]], None] | None = None
    ) -> None:
        """Write an audit with three generators a cell, better with every step.

        `alter` may change the rows of the measurements.
        """
        draw = random.Random(audit.seed)
        checkpoints: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        for policy in audit.policies:
            for cell in policy.cells:
                training = cell.recipe.generator_training
                assert training is not None
                for step in (0, self.steps // 2, self.steps):
                    name = f"{cell.key}/{step}"
                    checkpoints.append({
                        "name": name, "policy": policy.name, "cell": cell.key, "step": step,
                        "steps": self.steps, "disc": training.objective.disc,
                        "anchor": training.objective.anchor, "responses": training.responses,
                        "set_size": SAMPLES,
                    })  # fmt: skip
                    for row in self._rubrics(cell, None, 0.01 * step):
                        anchor = -3.0 + 0.2 * step + 0.1 * draw.gauss(0, 1)
                        row["anchor_r_anchor"] = anchor if row["valid"] else None
                        rows.append({"policy": policy.name, "checkpoint": name, **row})
        if alter:
            alter(rows)
        document = {
            "policies": {one.name: {"round": one.round} for one in audit.policies},
            "checkpoints": checkpoints,
            "spreads": {cell.key: {"disc": 0.02, "anchor": 0.3} for cell in audit.cells},
        }

        def build(dirs: BuildDirs) -> None:
            (dirs.out / "checkpoints.json").write_text(json.dumps(document))
            pq.write_table(pa.Table.from_pylist(rows), dirs.out / "measurements.parquet")

        inputs = {f"sets/{one.name}": self.root / one.sets for one in audit.policies}
        inputs |= {
            f"generator/{cell.key}": self.root / cell.directory / "generator"
            for cell in audit.cells
        }
        version = STEP_VERSIONS["audit_checkpoints"]
        asked = StepRequest("audit_checkpoints", version, {"rows": json.dumps(rows)}, inputs)
        remove(self.root / audit.directory)
        run_step(asked, self.root / audit.directory, self.root / "work/steps", build)

    def write_probes(
        self,
        gains: Callable[[str, int, str, str], tuple[float, float]] = lambda *place: (0.0, -0.1),
        shares: Callable[[str, int], tuple[float, float]] = lambda *place: (0.8, 0.9),
        alter: Callable[[dict[str, list[dict[str, Any]]]], None] | None = None,
    ) -> None:
        """Write the probes of every seed.

        Args:
            gains: (arm, round, attack, mode) to mean gains in score and in true quality.
            shares: (arm, round) to the mean shares of pairs of proxy and gold.
            alter: changes the rows of the tables, by name, before they are written.
        """
        if not planned_probes(self.plan):
            return
        request = StepRequest("prepare", 1, {"prepared": "made up"}, {})
        run_step(request, self.root / "data/prepared", self.root / "work/steps", _warm_generator)
        request = StepRequest("train_generator", 1, {"seed": "warm"}, {})
        warm = self.root / "data/warm/generator"
        run_step(request, warm, self.root / "work/steps", _warm_generator)
        for probe in planned_probes(self.plan).values():
            tables = {
                "attacks": [
                    row
                    for key, one in probe.cells.items()
                    for row in self._attacked(key, one, gains)
                ],
                "course": [
                    row
                    for key, one in probe.cells.items()
                    for row in self._course(key, one, shares)
                ],
            }
            if alter:
                alter(tables)

            def build(dirs: BuildDirs, tables: Any = tables) -> None:
                types = {"attacks": ATTACK_TYPES, "course": COURSE_TYPES}
                for name, rows in tables.items():
                    frame = pd.DataFrame(rows, columns=list(types[name])).astype(types[name])
                    frame.to_parquet(dirs.out / f"{name}.parquet", index=False)

            inputs = {name: self.root / folder for name, folder in probe.inputs.items()}
            inputs["prepared"] = self.root / "data/prepared"
            identity = {**probe.settings, "rows": json.dumps(tables, sort_keys=True)}
            version = PROBE_VERSIONS["probe_evaluators"]
            asked = StepRequest("probe_evaluators", version, identity, inputs)
            run_step(asked, self.root / probe.directory, self.root / "work/steps", build)

    def _attacked(self, key: str, one: ProbedCell, gains: Any) -> list[dict[str, Any]]:
        recipe = one.cell.recipe
        rows = []
        for attack in attacks_of(self.config.world.name).values():
            for mode in ("kept", "seen") if attack.order == "first" else ("seen",):
                score, quality = gains(one.arms[0], recipe.round, attack.name, mode)
                for prompt in range(self.prompts):
                    # The means are what was asked for, whatever the number of attacks.
                    own = score + (0.02 if prompt % 2 else -0.02)
                    true = quality + (0.02 if prompt % 4 < 2 else -0.02)
                    rows.append({
                        "cell": key, "evaluator": recipe.rubrics.evaluator, "attack": attack.name,
                        "order": attack.order, "mode": mode, "set_id": f"p{prompt:03d}/0",
                        "prompt_id": f"p{prompt:03d}", "place": 1,
                        "score_before": 0.4, "score_after": 0.4 + own, "score_gain": own,
                        "rank_before": 0.5, "rank_after": 0.5, "rank_gain": 0.0,
                        "quality_before": 0.1, "quality_after": 0.1 + true, "quality_gain": true,
                        "text": "forged", "rubric_before": "[]", "rubric_after": "[]",
                    })  # fmt: skip
        return rows

    def _course(self, key: str, one: ProbedCell, shares: Any) -> list[dict[str, Any]]:
        number = one.cell.recipe.round

        def drawn(reference: str) -> list[tuple[float, ...]]:
            """Round 1's start policy is that of the round before: its figures are the same."""
            draw = random.Random(f"{key} {'before' if number == 1 else reference}")
            return [
                tuple(min(1.0, max(0.0, mean + draw.gauss(0, 0.05))) for mean in means)
                for _ in range(self.prompts)
            ]

        means = shares(one.arms[0], number) if one.older else ()
        return [
            {"cell": key, "reference": reference, "set_id": f"p{prompt:03d}/0",
             "prompt_id": f"p{prompt:03d}", "num_pairs": 1, "proxy": proxy, "gold": gold}
            for reference in one.older
            for prompt, (proxy, gold) in enumerate(drawn(reference))
        ]  # fmt: skip

    def write_grids(self, generators: tuple[str, ...] = GENERATORS) -> None:
        """Write the grid of every seed that has one: the cells' rubrics, shifted by generator."""
        for grid in planned_grids(self.plan).values():
            request = StepRequest("train_generator", 1, {"seed": "warm"}, {})
            warm = self.root / grid.generators["G_0"]
            run_step(request, warm, self.root / "work/steps", _warm_generator)
            inputs = {name: self.root / folder for name, folder in grid.generators.items()}
            inputs |= {
                name: self.root / cell.directory / "evaluation"
                for name, cell in grid.policies.items()
            }
            figures: dict[str, Any] = {}
            rows: list[dict[str, Any]] = []
            for generator in generators:
                for policy, own in zip(grid.policies, GENERATORS, strict=False):
                    cell = grid.policies[policy]
                    rubrics = self._rubrics(cell, None, LEVELS[generator] - LEVELS[own])
                    found = _figures(self._responses(cell, 0.0, ""), rubrics, cell)
                    kept = {name: found[name] for name in SET_METRICS}
                    figures.setdefault(generator, {})[policy] = kept
                    rows += [{"generator": generator, "policy": policy, **row} for row in rubrics]

            def build(
                dirs: BuildDirs, figures: Any = figures, rows: list[dict[str, Any]] = rows
            ) -> None:
                (dirs.out / "metrics.json").write_text(json.dumps({"metrics": figures}))
                pq.write_table(pa.Table.from_pylist(rows), dirs.out / "rubrics.parquet")

            version = STEP_VERSIONS["evaluate_grid"]
            asked = StepRequest("evaluate_grid", version, {"figures": json.dumps(figures)}, inputs)
            run_step(asked, self.root / grid.directory, self.root / "work/steps", build)

    def write_cell(self, key: str, **changes: Any) -> None:
        """Write one cell anew; see `write_evaluation` and `write_training` for the changes."""
        cell = self.plan.cell(key)
        remove(self.root / cell.directory)
        log = changes.pop("log", None)
        if cell.recipe.round > 0:
            for role in ("generator", "policy"):
                self.write_training(cell, role, log)
        self.write_evaluation(cell, **changes)
        files = find_artefacts(self.root, cell)
        assert files is not None
        (files.folder / CELL_FILE).write_text(json.dumps(files.document))

    def write_evaluation(
        self,
        cell: Cell,
        *,
        metrics: dict[str, Any] | None = None,
        drop: tuple[str, ...] = (),
        rubric_texts: list[str] | None = None,
        quality_shift: float = 0.0,
        text: str = "=1+1 <b>hi</b>",
        criterion: str = CRITERION,
        alter: Callable[[dict[str, list[dict[str, Any]]]], None] | None = None,
    ) -> None:
        """Write evaluation/ with consistent tables, `metrics` laid over the right figures.

        `alter` may change the rows of the tables, by name, after the figures were computed.
        """
        responses = self._responses(cell, quality_shift, text)
        rubrics = self._rubrics(cell, rubric_texts)
        stored = _figures(responses, rubrics, cell) | (metrics or {})
        stored = {name: value for name, value in stored.items() if name not in drop}
        tables = {
            "responses": responses,
            "rubrics": rubrics,
            "verdicts": _verdicts(responses, rubrics, criterion),
        }
        if cell.before is not None:  # G_t on P_(t-1): a gap that the update takes away again
            tables["before"] = self._rubrics(cell, None, GAP_LOST)
        if alter:
            alter(tables)

        def build(dirs: BuildDirs) -> None:
            (dirs.out / "metrics.json").write_text(json.dumps({"metrics": stored}))
            for name, rows in tables.items():
                table = pa.Table.from_pylist(rows, schema=SCHEMAS.get(name))
                if rows and name in NULLABLE:  # the types that a real evaluation writes
                    frame = table.to_pandas().astype(NULLABLE[name])
                    table = pa.Table.from_pandas(frame, preserve_index=False)
                pq.write_table(table, dirs.out / f"{name}.parquet")

        facts = [stored, tables]
        self._publish(cell, "evaluate_round", "evaluation", facts, build)

    def write_training(self, cell: Cell, role: str, log: list[dict[str, float]] | None) -> None:
        """Write generator/ or policy/ with a training log and, if it was trained, rollouts."""
        own = {"r_disc": 0.1, "r_anchor": -2.0, "rate/invalid_rubric": 0.25}
        lines = log or [
            {"reward": 0.1 * step, "loss": 1.0 / step, "kl": 0.01 * step, "length": 2.5}
            | (own if role == "generator" else {})
            for step in range(1, self.steps + 1)
        ]
        rollouts = _rollouts(cell, role)

        def build(dirs: BuildDirs) -> None:
            text = "".join(
                json.dumps({"step": number, "metrics": metrics}) + "\n"
                for number, metrics in enumerate(lines, start=1)
            )
            (dirs.out / "training_log.jsonl").write_text(text)
            if rollouts:
                pq.write_table(pa.Table.from_pylist(rollouts), dirs.out / "rollouts.parquet")

        self._publish(cell, f"train_{role}", role, repr(lines), build)

    def _publish(self, cell: Cell, step: str, name: str, facts: Any, build: Any) -> None:
        identity = {"cell": cell.id, "facts": json.dumps(facts, sort_keys=True)}
        request = StepRequest(step, 1, identity, {})
        run_step(request, self.root / cell.directory / name, self.root / "work/steps", build)

    def _responses(self, cell: Cell, shift: float, text: str) -> list[dict[str, Any]]:
        draw = random.Random(cell.key)
        arm = cell.key.split("-")[0]
        level = 0.02 + SLOPES.get(arm, 0.04) * cell.recipe.round + shift
        return [
            {
                "prompt_id": f"p{prompt:03d}", "prompt": f"Write a postcard | {prompt}",
                "set_index": number, "sample_index": sample,
                "response_id": f"p{prompt:03d}-{number}-{sample}", "text": text,
                "true_quality": level + 0.05 * draw.gauss(0, 1),
                "score": _score(prompt * SETS + number, sample),
                "num_tokens": 17 + sample, "finish_reason": "stop",
                "kl": 0.4 * cell.recipe.round,
            }
            for prompt in range(self.prompts)
            for number in range(SETS)
            for sample in range(SAMPLES)
        ]  # fmt: skip

    def _rubrics(
        self, cell: Cell, texts: list[str] | None, gap_shift: float = 0.0
    ) -> list[dict[str, Any]]:
        draw = random.Random(cell.key + "rubrics")
        c_k = _c_k(cell)
        rows = []
        for index in range(self.prompts * SETS):
            disc, misdirected = draw.uniform(0.08, 0.2), draw.uniform(0.02, 0.1) - gap_shift / 2
            valid = _is_valid(index)
            gap = c_k * disc - 2 * misdirected - 0.01
            rows.append({
                "rubric_id": f"r{index}", "prompt_id": f"p{index // SETS:03d}",
                "set_index": index % SETS,
                "text": (texts or ['[{"criterion": "greets", "weight": 2}]'])[
                    index % len(texts or [""])
                ],
                "valid": valid, "invalid_reason": None if valid else "not_json",
                "num_items": ITEMS if valid else None, "delta_gap": gap if valid else None,
                "r_disc": disc if valid else None, "r_dir": misdirected if valid else None,
                "r_cov": 0.01 if valid else None, "rank_accuracy": 0.7 if valid else None,
                "tie_rate": 0.1 if valid else None,
            })  # fmt: skip
        return rows


def _is_valid(index: int) -> bool:
    return index % 9 != 8


def _verdict(sample: int, item: int) -> str:
    """Item 0 is met by every response of a set, item 1 by all but the first, item 2 by none."""
    return "yes" if item == 0 or (item == 1 and sample > 0) else "no"


def _score(index: int, sample: int) -> float | None:
    """Items weigh 3, 2 and 1."""
    if not _is_valid(index):
        return None
    met = sum(3 - item for item in range(ITEMS) if _verdict(sample, item) == "yes")
    return met / 6


def _verdicts(
    responses: list[dict[str, Any]], rubrics: list[dict[str, Any]], criterion: str
) -> list[dict[str, Any]]:
    valid = {(r["prompt_id"], r["set_index"]): r["rubric_id"] for r in rubrics if r["valid"]}
    return [
        {"response_id": row["response_id"], "rubric_id": rubric_id, "item_index": item,
         "criterion": criterion if item == 0 else f"criterion {item}", "weight": 3 - item,
         "verdict": _verdict(row["sample_index"], item), "reason": None, "p_yes": 1.0}
        for row in responses
        if (rubric_id := valid.get((row["prompt_id"], row["set_index"]))) is not None
        for item in range(ITEMS)
    ]  # fmt: skip


SCHEMAS = {
    "verdicts": pa.schema([
        ("response_id", pa.string()), ("rubric_id", pa.string()), ("item_index", pa.int64()),
        ("criterion", pa.string()), ("weight", pa.int64()), ("verdict", pa.string()),
        ("reason", pa.string()), ("p_yes", pa.float64()),
    ]),
}  # fmt: skip
"""Of tables that may be empty."""
NULLABLE = {
    "responses": {"score": "Float64", "true_quality": "Float64"},
    "rubrics": {"valid": "boolean", "num_items": "Int64", "tie_rate": "Float64"},
    "before": {"valid": "boolean", "num_items": "Int64", "tie_rate": "Float64"},
}


def _rollouts(cell: Cell, role: str) -> list[dict[str, Any]]:
    """Rows of a training: a generator's rubrics have 3 items and 5 tokens, a score 2 verdicts."""
    recipe = cell.recipe
    if role == "generator" and recipe.generator_training is not None:
        training = recipe.generator_training
        count = training.steps * training.prompts_per_step * training.group_size
        return [{"step": 1, "num_items": 3, "num_tokens": 5}] * count
    if role == "policy" and recipe.policy_training is not None:
        count = recipe.policy_training.steps * recipe.policy_training.prompts_per_step
        row = {"step": 1, "prompt_id": "p000", "verdicts": ["yes", "no"], "rubric": "[]"}
        return [row] * (count * recipe.responses_per_set)
    return []


def _figures(
    responses: list[dict[str, Any]], rubrics: list[dict[str, Any]], cell: Cell
) -> dict[str, Any]:
    def mean(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
        known = [row[name] for row in rows if row[name] is not None]
        return {"value": statistics.fmean(known), "n_scored": len(known), "n_total": len(rows)}

    names = ("delta_gap", "r_disc", "r_dir", "r_cov", "rank_accuracy", "tie_rate")
    figures = {name: mean(rubrics, name) for name in names}
    count = len(rubrics)
    valid = sum(row["valid"] for row in rubrics)
    return figures | {
        "true_quality": mean(responses, "true_quality"),
        "valid_rubric_rate": {"value": valid / count, "n_scored": count, "n_total": count},
        "items_per_rubric": {"value": float(ITEMS), "n_scored": valid, "n_total": count},
        "response_length": mean(responses, "num_tokens"),
        "kl": mean(responses, "kl"),
    }


def _warm_generator(dirs: BuildDirs) -> None:
    (dirs.out / "training_log.jsonl").write_text("")


def _c_k(cell: Cell) -> float:
    size = cell.recipe.responses_per_set
    return 2 * size / (size - 1)


def _config(
    arms: tuple[str, ...],
    seeds: tuple[int, ...],
    rounds: int,
    run: tuple[Selection, ...] | None,
    prompts: int,
    steps: int,
    profile: str,
    audit: AuditConfig | None,
) -> Config:
    full = load_config(REPOSITORY / "profiles" / f"{profile}.yaml")
    chosen = {name: full.study.arms[name] for name in arms}
    study = full.study.model_copy(
        update={
            "rounds": rounds,
            "seeds": seeds,
            "arms": chosen,
            "groups": {},
            "run": run,
            "audit": audit,
        }
    )
    recipe = full.recipe.model_copy(
        update={
            "responses_per_set": SAMPLES,
            "generator": full.recipe.generator.model_copy(
                update={"first_steps": steps, "steps": steps}
            ),
            "policy": full.recipe.policy.model_copy(
                update={"steps": steps, "batch_size": full.recipe.policy.prompts_per_step * SAMPLES}
            ),
        }
    )
    return full.model_copy(
        update={
            "study": study,
            "recipe": recipe,
            "world": full.world.model_copy(update={"num_heldout_prompts": prompts}),
            "evaluation": full.evaluation.model_copy(update={"sets_per_prompt": SETS}),
        }
    )
