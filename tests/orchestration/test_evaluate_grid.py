"""The grid's task: what it asks the step for."""

from __future__ import annotations

from dynamicrubric.grid import GENERATORS, POLICIES, planned_grids
from tasks.evaluate_grid import evaluate_grid
from tasks.study import Study


def test_evaluate_grid_asks_for_every_generator_on_every_policys_responses(fake_study, monkeypatch):
    made = fake_study(arms=("coevolved", "stale"), rounds=2)
    study = Study(made.root)
    asked = {}

    def keep(self, request, out_dir, arguments, *, group, on_line):
        asked.update(inputs=request.inputs, out=out_dir, group=group)

    monkeypatch.setattr(Study, "run_gpu_step", keep)
    monkeypatch.setattr("tasks.evaluate_grid.log_line", lambda: print)  # wants a flow around it
    evaluate_grid.fn(study, planned_grids(made.plan)["s1"])
    assert asked["group"] == "grid-s1"
    assert asked["out"] == made.root / "data/grid/s1"
    assert set(asked["inputs"]) == {*GENERATORS, *POLICIES}
    assert len(set(asked["inputs"].values())) == len(GENERATORS) + len(POLICIES)
