"""An explanation for people: rich tables, in which what a model wrote is content, never markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dynamicrubric.explain import ResponseExplained, RubricExplained
from dynamicrubric.lineage import Checkpoint, Row, Training
from dynamicrubric.report.text import visible

NOTHING: Final = "\u2013"
ALIKE: Final = "In this arm every item counts one, whatever weight the rubric gives it."


def show_response(found: ResponseExplained) -> RenderableType:
    """Return the way from the rubric to the checkpoint for one response."""
    return Group(
        _heading(f"Response {found.id} of {found.cell}"),
        _facts(
            ("prompt", found.prompt_id),
            ("response", found.text),
            ("text hash", found.text_hash),
        ),
        _heading("1. The rubric and its verdicts"),
        *_rubric(found),
        _heading("2. The score and the reward"),
        _plain(_score_sentence(found)),
        _heading(f"3. The advantage among the {len(found.group)} responses to this prompt"),
        _table(
            ("number", "score", "reward", "advantage", "response"),
            [
                (
                    _mark(one.id, found.id),
                    _number(one.score),
                    _number(one.reward),
                    _signed(one.advantage),
                    _one_line(one.text),
                )
                for one in found.group
            ],
            one_line=True,
        ),
        _plain(_advantage_sentence(found)),
        _heading(f"4. What step {found.step} trained"),
        _checkpoint(found.checkpoint),
        _plain("Score, reward and advantage were computed again from their parts: they agree."),
    )


def show_rubric(found: RubricExplained) -> RenderableType:
    """Return the way from a rubric's rewards to the checkpoint."""
    paid = [("R_disc", found.r_disc, found.advantage_disc)]
    paid += [("R_anchor", found.r_anchor, found.advantage_anchor)]
    if found.advantage_gap is not None:
        paid.append(("R_gap", found.r_gap, found.advantage_gap))
    parts = zip(paid, found.weights, strict=True)
    with_gap = found.advantage_gap is not None
    return Group(
        _heading(f"Rubric {found.id} of {found.cell}"),
        _facts(("prompt", found.prompt_id), ("rubric", found.rubric_id)),
        _table(("weight", "criterion"), [(str(w), visible(c)) for c, w in found.criteria])
        if found.criteria
        else _plain(f"Invalid ({found.invalid_reason}): {visible(found.text)}"),
        *([_plain(ALIKE)] if found.criteria and found.counts_alike else []),
        _heading("1. The rewards and their advantages in the group"),
        _table(
            ("reward", "value", "advantage", "weight"),
            [
                (name, _number(value), _signed(own), f"{weight:g}")
                for (name, value, own), weight in zip(paid, found.weights, strict=True)
            ],
        ),
        _plain(
            f"advantage = {' + '.join(f'{w:g} x {_signed(own)}' for (_, _, own), w in parts)}"
            f" = {_signed(found.advantage)}"
        ),
        *(
            [
                _plain(
                    f"Off R_disc: items with {found.single_share:.0%} of the weight name one "
                    "response in its own words."
                )
            ]
            if found.single_share
            else []
        ),
        _heading(f"2. The {len(found.group)} rubrics for this response set"),
        _table(
            (
                "number",
                "R_disc",
                "R_anchor",
                *(["R_gap"] if with_gap else []),
                "advantage",
                "rubric",
            ),
            [
                (
                    _mark(one.id, found.id),
                    _number(one.r_disc),
                    _number(one.r_anchor),
                    *([_number(one.r_gap)] if with_gap else []),
                    _signed(one.advantage),
                    _one_line(one.text),
                )
                for one in found.group
            ],
            one_line=True,
        ),
        _heading(f"3. What step {found.step} trained"),
        _checkpoint(found.checkpoint),
        _plain(
            "The advantages were computed again from the rewards: they agree. The verdicts behind "
            "the rewards are not kept for the generator. TRL normalises the sums once more over "
            "the step, which moves and scales them all alike."
        ),
    )


def show_rows(training: Training, rows: Sequence[Row], num_all: int) -> RenderableType:
    """Return the table of a training's rows.

    Args:
        training: whose rows they are.
        rows: those to show.
        num_all: how many there are to show in all.
    """
    policy = training.role == "policy"
    columns = ("score", "reward") if policy else ("r_disc", "r_anchor")
    table = _table(
        ("id", *columns, "advantage", "text"),
        [
            (
                visible(row["id"]),
                *(_number(row[column]) for column in columns),
                _signed(row["advantage"]),
                _one_line(row["text"]),
            )
            for row in rows
        ],
        one_line=True,
    )
    what = "responses" if policy else "rubrics"
    option = "" if policy else "--generator "
    steps = training.rows[-1]["step"]
    notes = [f"{len(rows)} of {num_all} {what}; steps 1 to {steps} have {len(training.rows)}."]
    if len(rows) < num_all:
        notes.append("`--step N` shows a step, `--limit 0` all.")
    notes.append(f"`dynamicrubric explain {training.key} {option}ID` explains one.")
    return Group(table, _plain(" ".join(notes)))


def _rubric(found: ResponseExplained) -> list[RenderableType]:
    if found.rubric is None:
        return [_plain(f"None: the evaluator of this arm, {found.evaluator}, writes no rubrics.")]
    writer = f"generator {found.judge}" if found.judge else "no generator: a fixed rubric"
    facts = _facts(("rubric", str(found.rubric_id)), ("written by", writer))
    return [facts, _items(found), *([_plain(ALIKE)] if found.counts_alike else [])]


def _items(found: ResponseExplained) -> RenderableType:
    if not found.items:
        reason = f"Invalid ({found.invalid_reason}), so no response of the set has a score: "
        return _plain(reason + visible(str(found.rubric)))
    return _table(
        ("weight", "verdict", "adds", "criterion"),
        [
            (str(i.weight), visible(i.verdict), _number(i.share), visible(i.criterion))
            for i in found.items
        ],
    )


def _score_sentence(found: ResponseExplained) -> str:
    if found.true_quality is not None:
        quality = f"no score; the true quality is {_number(found.true_quality)}"
        return f"{quality}; {_cut(found) if found.cut else 'the reward is the true quality'}"
    if found.score is None:
        return f"Unscored ({found.score_reason}): left out of the group, so it teaches nothing."
    gained = " + ".join(str(item.weight) for item in found.items if item.verdict == "yes") or "0"
    total = " + ".join(str(item.weight) for item in found.items)
    score = f"score = ({gained}) / ({total}) = {_number(found.score)}"
    return f"{score}; {_cut(found) if found.cut else 'the reward is the score'}"


def _cut(found: ResponseExplained) -> str:
    return f"cut at its token limit, so the reward is {_number(found.reward)}"


def _advantage_sentence(found: ResponseExplained) -> str:
    rewards = {one.reward for one in found.group if one.reward is not None}
    if found.reward is None or found.mean is None:
        return "advantage = 0: unscored"
    if len(rewards) == 1:
        return "advantage = 0: the scored responses all earned the same"
    return (
        f"advantage = (reward - mean) / (standard deviation + 0.0001) with mean "
        f"{_number(found.mean)}: {_signed(found.advantage)}"
    )


def _checkpoint(checkpoint: Checkpoint) -> RenderableType:
    return _facts(
        ("checkpoint", checkpoint.file),
        ("sha256", checkpoint.sha256),
        ("artefact", checkpoint.content_hash),
        ("DVC", checkpoint.dvc_hash or "not in dvc.lock"),
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, one_line: bool = False) -> Table:
    """Return a table whose last column is text: folded, or cut with an ellipsis on one line."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=one_line)
    for place, head in enumerate(heads[:-1]):
        width = max(len(cell) for cell in (head, *(row[place] for row in rows)))
        table.add_column(head, no_wrap=True, width=width)
    table.add_column(
        heads[-1],
        no_wrap=one_line,
        ratio=1 if one_line else None,
        overflow="ellipsis" if one_line else "fold",
    )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _facts(*facts: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(name), Text(visible(value)))
    return table


def _one_line(text: str) -> str:
    return visible(text).replace("\n", " ")


def _heading(text: str) -> Text:
    return Text(f"\n{visible(text)}", style="bold")


def _plain(text: str) -> Text:
    return Text(text)


def _mark(own: str, asked: str) -> str:
    number = own.rpartition("/")[2]
    return f"{number} <" if own == asked else number


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def _signed(value: float) -> str:
    return f"{value:+.4f}"
