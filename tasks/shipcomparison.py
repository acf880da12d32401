"""The comparison in the tracker: a run of its own for each study.

It says in its description what to search for to see the study's arms alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dynamicrubric.config import Config
from dynamicrubric.metrics import GAP_PAIRS
from dynamicrubric.plan import Plan
from dynamicrubric.report import Comparison
from tasks.disk import sha256_of
from tasks.identity import hash_of
from tasks.payload import Point, config_text, study_tag
from tasks.shipping import NOTE
from tasks.tracking import Store, TrackingOutcome, is_shipped, open_store, shipping, writing


def log_comparison(
    plan: Plan, comparison: Comparison, root: Path, config: Config
) -> TrackingOutcome:
    """Log the comparison to a run of its own: means by round and arm, differences, all files.

    Raises:
        ValueError: the comparison is partial; a tracker would show it as the study's.
    """
    if comparison.faults:
        raise ValueError("a partial comparison is none of the tracker's")
    report = sorted(comparison.report.rglob("*.*")) if comparison.report else []
    files = [path for path in (*comparison.files, *report) if path.is_file()]
    study, content = study_tag(plan), hash_of([sha256_of(path) for path in files])

    def act() -> tuple[str, ...]:
        store = open_store(root)
        with writing(root, "the comparison"):
            old = store.find(kind="comparison", **{study.removeprefix("dr."): "1"})
            shipped = [run.info.run_id for run in old if is_shipped(run, content)]
            if shipped:
                return (shipped[0],)
            tags = {"dr.kind": "comparison", study: "1", "dr.content": content}
            tags["dr.pairs"] = GAP_PAIRS
            run_id = store.create("comparison", tags | {NOTE: search_note(study)})
            _fill(store, run_id, comparison, config)
            store.close(run_id, "FINISHED")
            store.replace(old, run_id)
        return (run_id,)

    return shipping("tracking the comparison", act)


def search_note(study: str) -> str:
    """Return the description of a study's comparison: the search texts of its runs.

    Args:
        study: the study's tag.
    """
    return (
        f"Arms of this study: search for `tags.dr.kind = 'arm' and tags.{study} = '1'`\n\n"
        f"All its runs: search for `tags.{study} = '1'`"
    )


def _fill(store: Store, run_id: str, comparison: Comparison, config: Config) -> None:
    points = [*_mean_points(comparison), *_difference_points(comparison)]
    store.send_points(run_id, points, store.client.get_run(run_id).info.start_time)
    for path in comparison.files:
        store.client.log_artifact(run_id, str(path))
    if comparison.report is not None:
        store.client.log_artifacts(run_id, str(comparison.report), "report")
    store.client.log_text(run_id, config_text(config), "config/params.json")


def _mean_points(comparison: Comparison) -> Iterable[Point]:
    table = comparison.outcomes
    return [
        Point(f"{metric}/{arm}", value, number)
        for metric in table.metrics
        for arm in table.arms
        for number in range(table.last_round + 1)
        if (value := table.mean(arm, number, metric)) is not None
    ]


def _difference_points(comparison: Comparison) -> Iterable[Point]:
    """Return each difference, its interval's ends and its corrected p-value at its round."""
    return [
        Point(f"difference/{found.metric}/{found.other}/{name}", value, found.round)
        for found in comparison.differences
        for name, value in zip(
            ("mean", "low", "high", "p_corrected"),
            (found.mean, *(found.estimate.interval or (None, None)), found.p_corrected),
            strict=True,
        )
        if value is not None
    ]
