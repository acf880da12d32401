from __future__ import annotations

import csv

import pytest

from dynamicrubric.errors import UserError
from dynamicrubric.report import write_comparison
from dynamicrubric.report.gather import UPDATES, gather
from dynamicrubric.report.updates import updates_of

PAIR = ("coevolved", "stale")


def test_update_is_each_arms_generator_on_both_policies_of_its_round(shared_study):
    study = shared_study(arms=PAIR, seeds=(1, 2, 3), rounds=2)
    found = updates_of(gather(study.plan, study.root))
    places = [(one.metric, one.arm, one.round) for one in found]
    assert places == [(m, arm, number) for m in UPDATES for arm in PAIR for number in (1, 2)]
    for one in found:
        lost = {"delta_gap": -0.04, "r_dir": 0.02}.get(one.metric, 0.0)
        before, after = one.means
        assert after - before == pytest.approx(lost, abs=1e-12)
        assert one.change.mean == pytest.approx(lost, abs=1e-12)
        assert tuple(one.before) == tuple(one.after) == (1, 2, 3)


def test_update_after_is_the_rounds_own_figure(shared_study):
    study = shared_study(arms=PAIR, seeds=(1, 2, 3), rounds=2)
    gathered = gather(study.plan, study.root)
    for one in updates_of(gathered):
        for seed, value in one.after.items():
            key = study.plan.paths[one.arm, seed][one.round]
            own = gathered.cells[key].by_prompt[one.metric].values()
            known = [found for found in own if found is not None]
            assert value == pytest.approx(sum(known) / len(known))


def test_report_shows_updates_in_a_section_a_picture_and_a_table(fake_study, undrawn):
    study = fake_study(arms=PAIR, rounds=2)
    found = write_comparison(study.plan, {}, study.root, study.root / "results")
    page = (found.report / "index.html").read_text(encoding="utf-8")
    assert 'href="#updates"' in page
    assert "stale, round 2" in page
    assert (found.report / "plots/updates.png").exists()
    with (found.report / "tables/updates.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(UPDATES) * len(PAIR) * 2
    assert {row["seeds"] for row in rows} == {"1"}


def test_report_of_arms_that_write_no_rubrics_has_no_such_section(fake_study, undrawn):
    study = fake_study(arms=PAIR, rounds=1, write=False)
    for key in (*study.plan.starts, *study.plan.cells):
        study.write_cell(key, alter=lambda tables: tables.pop("before", None))
    study.write_grids()
    found = write_comparison(study.plan, {}, study.root, study.root / "results")
    assert 'id="updates"' not in (found.report / "index.html").read_text(encoding="utf-8")


def test_table_before_an_update_that_contradicts_itself_is_refused_by_name(fake_study):
    def alter(tables):
        tables["before"][0]["delta_gap"] += 0.1

    study = fake_study(arms=PAIR, rounds=1)
    study.write_cell("coevolved-s1-r1", alter=alter)
    with pytest.raises(UserError) as caught:
        write_comparison(study.plan, {}, study.root, study.root / "results")
    assert "before.parquet of the cell coevolved-s1-r1" in str(caught.value)
    assert "c_K r_disc" in str(caught.value)
