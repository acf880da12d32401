"""The audit in words: the question, the answer, and tables of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dynamicrubric.audit.falsifier import OBJECTIVES
from dynamicrubric.audit.findings import SURE, Audit, BoundFigures, Chance, EndFigures
from dynamicrubric.audit.ranks import Pooled
from dynamicrubric.metrics import GAP_PAIRS
from dynamicrubric.report.evidence import Grid
from dynamicrubric.report.phrases import CERTAINTY, NOTHING, count, listed, number, share

TITLE: Final = "Audit of the anchor calibration (Eq. 45)"
QUESTION: Final = (
    "The paper's bound on Δ gap assumes -eta_res >= beta J_anchor + eps_t for one beta > 0 and an "
    "offset eps_t a round, and trains R_disc + lambda R_anchor with lambda = 1, which is the bound "
    "only if beta = c_K. Is there such a beta, and does the objective point where Δ gap rises?"
)
END_LABELS: Final = {
    "r_disc": "R_disc", "j_anchor": "J_anchor", "eta_res": "eta_res", "delta_gap": "Δ gap",
}  # fmt: skip
LITTLE: Final = 0.1
"""Of the largest slack: taking off less than this share says hardly anything about anchors."""
BY_CHANCE: Final = 0.05
"""Of deals: where as many take off as much, anchors need not have done it."""


def answer(audit: Audit) -> str:
    """Return the answer in one paragraph, from the figures alone."""
    return " ".join([_basis(audit), _one_beta(audit), _matched(audit), _order(audit),
                     _falsified(audit)])  # fmt: skip


def _basis(audit: Audit) -> str:
    groups, rounds = audit.measured.groups, audit.measured.rounds
    policies = "1 policy" if len(groups) == 1 else f"{len(groups)} policies"
    return (
        f"Measured: {audit.num_generators} generators on the held-out responses of {policies} "
        f"({_rounds(rounds)}, {count(len(audit.measured.seeds), 'seed')}). With an offset for each "
        "policy every beta is feasible, so the condition by itself rules nothing out; what it says "
        "is how little slack one beta leaves."
    )


def _one_beta(audit: Audit) -> str:
    found = audit.by_policy
    off, chance = _less(found.largest.largest, found.without.largest), found.chance
    says = "better than no anchors"
    if off < LITTLE:
        says = "hardly better than no anchors at all"
    elif chance.largest_as_much >= BY_CHANCE:
        says = "no better than chance may do"
    betas = found.intervals
    largest, mean = (betas.largest, betas.mean) if betas else (None, None)
    return (
        f"Offsets alone (beta = 0) leave a slack of at most {number(found.without.largest, 3)}, "
        f"{number(found.without.mean, 3)} on average, where Δ gap itself spreads over "
        f"{number(audit.gap_range, 3)}. For all generators at once the best beta, "
        f"{number(found.largest.beta, 3)}{_within(largest)}, leaves at most "
        f"{number(found.largest.largest, 3)} ({share(off)} less): {says}. "
        f"On average the best is {number(found.mean.beta, 3)}{_within(mean)}, with a mean slack of "
        f"{number(found.mean.mean, 3)} ({share(_less(found.mean.mean, found.without.mean))} less). "
        f"{_by_chance(chance)}"
    )


def _by_chance(chance: Chance) -> str:
    return (
        "A fitted beta always takes something off: with J_anchor dealt anew among the generators "
        f"of each policy {share(chance.largest_off)} and {share(chance.mean_off)} on average, and "
        f"as much as here in {share(chance.largest_as_much)} and {share(chance.mean_as_much)} "
        "of deals."
    )


def _within(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f" ({CERTAINTY} {number(ends[0], 3)} to {number(ends[1], 3)})"


def _matched(audit: Audit) -> str:
    found, c_k = audit.by_policy, audit.c_k
    worse = found.matched.largest > found.without.largest
    says = "which is worse than no anchors at all" if worse else "less than without anchors"
    return (
        f"beta = c_K = {number(c_k)}, the match for lambda = 1, needs a slack of "
        f"{number(found.matched.largest, 3)}, {says}; the lambda that the data would match is "
        f"beta / c_K = {number(found.mean.beta / c_k, 3)} by the mean slack, "
        f"{number(found.largest.beta / c_k, 3)} by the largest{_slope(audit)}.{_trained(audit)}"
    )


def _trained(audit: Audit) -> str:
    found = audit.by_policy.trained
    if found is None:
        return ""
    return (
        " Rewards are divided by their spread before they are added, so that lambda = 1 as it is "
        f"trained is {number(found.beta / audit.c_k, 3)} on the rewards: its match, beta = "
        f"{number(found.beta, 3)}, needs a slack of {number(found.largest, 3)}, "
        f"{number(found.mean, 3)} on average."
    )


def _slope(audit: Audit) -> str:
    slope = audit.by_policy.slope
    if slope is None:
        return ""
    return f" and {number(slope / audit.c_k, 3)} by least squares, which is no bound"


def _order(audit: Audit) -> str:
    said = [f"{_pooled(one.ranks)} in round {one.round}" for one in audit.rounds]
    return f"In order they agree so far: rank correlation of J_anchor with -eta_res {listed(said)}."


def _falsified(audit: Audit) -> str:
    found = audit.pairs[SURE]
    by_round = [
        f"{share(one.pairs[SURE].share.value)} in round {one.round}" for one in audit.rounds
    ]
    sure = (
        f"of {found.sure} pairs in which both changes are sure, {found.sure_against} are"
        if found.sure
        else "in no pair are both changes sure"
    )
    return (
        f"The falsifier: in {found.against} of {found.pairs} pairs of generators of a policy the "
        f"objective as it is trained rises and Δ gap falls ({listed(by_round)}); {sure}."
    )


def grids(audit: Audit) -> tuple[Grid, ...]:
    """Return the tables: the bound, rounds, what trainings end with, the falsifier."""
    return (_bound_grid(audit), _rounds_grid(audit), _ends_grid(audit), _pairs_grid(audit))


def _bound_grid(audit: Audit) -> Grid:
    heads = ("an offset for", "beta", CERTAINTY, "beta is", "largest slack", "mean slack",
             "lambda = beta/c_K")  # fmt: skip
    rows = tuple(row for found in (audit.by_policy, audit.by_round)
                 for row in _bound_rows(found, audit.c_k))  # fmt: skip
    return Grid("Slack of -eta_res >= beta J_anchor + eps, in the unit of Δ gap", heads, rows)


def _bound_rows(found: BoundFigures, c_k: float) -> Iterator[tuple[str, ...]]:
    named = {
        "none: offsets alone": found.without,
        "least largest slack": found.largest,
        "least mean slack": found.mean,
        "c_K, for lambda = 1": found.matched,
        "c_K by the ratio of spreads, for lambda = 1 as it is trained": found.trained,
    }
    betas = found.intervals
    ends = {"least largest slack": betas.largest, "least mean slack": betas.mean} if betas else {}
    for name, one in named.items():
        if one is None:
            continue
        low, high = ends.get(name, (None, None))
        yield (
            f"{found.offsets} ({found.num_offsets})", number(one.beta, 4),
            NOTHING if low is None else f"{number(low, 4)} to {number(high, 4)}", name,
            number(one.largest, 4), number(one.mean, 4), number(one.beta / c_k, 4),
        )  # fmt: skip


def _rounds_grid(audit: Audit) -> Grid:
    heads = ("round", "policies", "generators", "rank correlation", CERTAINTY, "over",
             "mean slack", "at beta = 0", "lambda = 1 is, on the rewards")  # fmt: skip
    rows = tuple(
        (f"round {one.round}", str(one.policies), str(one.generators),
         number(one.ranks.value), _interval(one.ranks), one.ranks.over or NOTHING,
         number(one.mean.mean, 3), number(one.without.mean, 3), number(one.raw_lambda, 3))
        for one in audit.rounds
    )  # fmt: skip
    beta = number(audit.by_policy.mean.beta, 3)
    title = f"By round: J_anchor and -eta_res in order, and the slack at beta = {beta}"
    return Grid(title, heads, rows)


def _ends_grid(audit: Audit) -> Grid:
    heads = ["round and objective", "generators"]
    for label in END_LABELS.values():
        heads += [label, CERTAINTY]
    rows = tuple(
        _end_cells(f"round {one.round}, {ends.objective}", ends)
        for one in audit.rounds
        for ends in one.ends
    )
    title = "The generators that trainings start from and end with"
    return Grid(title, (*heads, "over"), rows)


def _end_cells(name: str, ends: EndFigures) -> tuple[str, ...]:
    cells = [name, str(ends.generators)]
    for figure in END_LABELS:
        found = ends.figures[figure]
        cells += [number(found.value, 4), _interval(found, digits=4)]
    return (*cells, ends.figures["delta_gap"].over or NOTHING)


def _pairs_grid(audit: Audit) -> Grid:
    heads = ("objective and round", "pairs", "against", "share by policy", CERTAINTY, "over",
             "sure pairs", "of them against")  # fmt: skip
    rows = []
    for name in OBJECTIVES:
        counted = [(f"{name}, round {one.round}", one.pairs[name]) for one in audit.rounds]
        for label, found in [*counted, (f"{name}, all rounds", audit.pairs[name])]:
            rows.append((
                label, str(found.pairs), str(found.against), share(found.share.value),
                _interval(found.share, percent=True), found.share.over or NOTHING,
                str(found.sure), str(found.sure_against),
            ))  # fmt: skip
    return Grid("The falsifier: the objective rises and Δ gap falls", heads, tuple(rows))


def notes(audit: Audit) -> tuple[tuple[str, str], ...]:
    """Return (name, text) lines: what the words mean, what it rests on, what it does not say."""
    measured = audit.measured
    few = [f"{one.name} {one.sets} of {one.sets_total}" for group in measured.groups
           for one in group.checkpoints if one.sets < one.sets_total / 2]  # fmt: skip
    kept = f"; fewer than half of the sets: {', '.join(few)}" if few else ""
    return (
        ("P of Δ gap", GAP_PAIRS),
        ("eta_res", "2 R_dir + R_cov: what Δ gap = c_K R_disc - eta_res leaves, exactly; largest "
         f"error {measured.identity_error:.2g} over {measured.sets} rubrics for held-out sets"),
        ("J_anchor", "mean R_anchor of the same rubrics on ranked lists of the held-out prompts, "
         "which no training reads"),
        ("a generator", "the one that a training starts from, those kept on its way and the one it "
         "ends with, all on the same held-out sets of the policy that it starts from, with the "
         f"same draws; invalid rubrics and unscored verdicts are left out{kept}"),
        ("an offset for each policy", "the most that the bound may ask: the paper has one a round "
         "of one run; with one a round number, seeds and arms share it"),
        ("slack", "-eta_res - beta J_anchor - eps, with eps as high as the generators of its "
         "offset allow; the bound says Δ gap is at least c_K R_disc + beta J_anchor + eps, and is "
         "short of it by the slack"),
        *((f"objective {name}", text) for name, text in OBJECTIVES.items()),
        ("lambda = 1 is, on the rewards", "each reward is divided by its spread within a group "
         "before they are added: on the rewards themselves lambda is the ratio of the spreads"),
        ("interval of beta", "over the prompts that were held out, with these same generators: "
         "the middle of what resampled prompts give; it says nothing about others"),
        ("dealt anew", "J_anchor is dealt anew among the generators of each policy, so that it "
         "says nothing; generators of one training are alike, so chance may do more than that"),
        ("sure", f"the {CERTAINTY} interval of the change over prompts, paired, leaves out 0; it "
         "is about the seeds that were run, and is not corrected for the number of pairs: where "
         "nothing differs, 1 pair in 800 would be sure and against if the two changes were "
         "independent"),
        ("limits", "checkpoints of one training are no independent sample; a beta from these "
         "generators is no promise for others"),
        *((("no figures", ", ".join(measured.left_out)),) if measured.left_out else ()),
    )  # fmt: skip


def _rounds(rounds: tuple[int, ...]) -> str:
    return f"round{'' if len(rounds) == 1 else 's'} {listed([str(one) for one in rounds])}"


def _less(value: float, than: float) -> float:
    return 1.0 - value / than if than > 0.0 else 0.0


def _pooled(one: Pooled) -> str:
    return number(one.value)


def _interval(one: Pooled, *, percent: bool = False, digits: int = 2) -> str:
    if one.low is None or one.high is None:
        return "none"
    low, high = (share(end) if percent else number(end, digits) for end in (one.low, one.high))
    return f"{low} to {high}"
