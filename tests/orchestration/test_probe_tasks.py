"""The tasks of probes: what they ask for, and a run that stops when proxy and gold diverge."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dynamicrubric.errors import UserError
from dynamicrubric.probes.course import CourseRow
from dynamicrubric.probes.files import write_probes
from dynamicrubric.probes.planned import planned_probes
from dynamicrubric.types import Score
from tasks.probe_evaluators import probe_evaluators, watch_course
from tasks.study import Study

ARMS = ("coevolved", "static")


@pytest.fixture
def asked(monkeypatch):
    """What steps are asked for, instead of being run; `rows` is what a watch would find."""
    found = {"rows": []}

    def keep(self, request, out_dir, arguments, *, group, on_line):
        out = self.root / "made"
        given = arguments(SimpleNamespace(out=out))
        found.update(request=request, out=out_dir, group=group, given=given)
        out.mkdir(exist_ok=True)
        write_probes({}, {"coevolved-s1-r1": found["rows"]}, out)
        return SimpleNamespace(path="made")

    monkeypatch.setattr(Study, "run_gpu_step", keep)
    monkeypatch.setattr("tasks.probe_evaluators.log_line", lambda: print)  # wants a flow around it
    return found


@pytest.fixture
def made(fake_study):
    return fake_study(arms=ARMS, rounds=1, probe=ARMS)


def study_of(made) -> Study:
    study = Study(made.root)
    study.__dict__.update(config=made.config, plan=made.plan)  # what params.yaml would say
    return study


def test_probe_asks_for_every_cell_and_names_what_it_reads(made, asked):
    study = study_of(made)
    probe = planned_probes(made.plan)["s1"]
    probe_evaluators.fn(study, probe)
    assert asked["out"] == made.root / "data/probes/s1"
    assert asked["group"] == "probe-s1"
    request = asked["request"]
    assert (request.step, set(request.inputs)) == ("probe_evaluators", {"prepared", *probe.inputs})
    cells = {one["key"]: one for one in asked["given"]["cells"]}
    assert set(cells) == set(probe.cells)
    assert set(cells) == {f"{arm}-s1-r{number}" for arm in ARMS for number in (0, 1)}
    last = cells["static-s1-r1"]
    assert set(last["older"]) == {"before", "start"}
    assert last["older"]["before"] == str(made.root / "data/runs/static-s1-r0/evaluation")
    assert last["recipe"]["rubrics"]["evaluator"] == "static"


def rows(proxy: float, gold: float) -> list[CourseRow]:
    return [
        CourseRow("before", f"p{n}/0", f"p{n}", 9,
                  Score.of(proxy + 0.01 * (n % 3)), Score.of(gold + 0.01 * (n % 3)))
        for n in range(24)
    ]  # fmt: skip


def test_run_stops_after_the_round_in_which_proxy_and_gold_diverge(made, asked):
    asked["rows"] = rows(0.8, 0.2)
    cell = made.plan.cell("coevolved-s1-r1")
    with pytest.raises(UserError) as caught:
        watch_course.fn(study_of(made), cell, None)
    said = str(caught.value)
    assert "coevolved-s1-r1, round 1" in said
    assert "81.0 %" in said and "21.0 %" in said and "diverge" in said
    assert "stop_on_divergence: false" in said
    assert asked["out"] == made.root / "work/courses/coevolved-s1-r1"
    assert set(asked["request"].inputs) == {"prepared", "before", "generator", "evaluation"}


def test_run_goes_on_where_they_do_not(made, asked):
    asked["rows"] = rows(0.8, 0.7)
    said = watch_course.fn(study_of(made), made.plan.cell("coevolved-s1-r1"), None)
    assert "do not diverge" in said
