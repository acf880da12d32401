"""Made-up measurements of an audit: groups with figures by prompt that are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynamicrubric.audit.read import FIGURES, Facts, Group, Measured
from dynamicrubric.theory import c_k_of

NUM_PROMPTS = 24
C_K = c_k_of(6)


def facts(name: str, step: int = 10, disc: float = 1.0, anchor: float = 1.0) -> Facts:
    return Facts(name, name.partition("/")[0], step, 60, disc, anchor, "current", 48, 48)


def group(
    means: Sequence[tuple[float, float, float]],
    *,
    seed: int = 1,
    policy: str = "start",
    number: int = 1,
    noise: float = 0.0,
    spreads: tuple[float | None, float | None] = (0.02, 0.4),
) -> Group:
    """A group of generators with these means of (R_disc, J_anchor, eta_res).

    By prompt they vary by `noise` around them, and Delta_gap is what the identity gives.
    """
    draw = np.random.default_rng([seed, number, len(means)])
    wobble = draw.normal(size=(3, len(means), NUM_PROMPTS)) * noise
    wobble -= wobble.mean(axis=2, keepdims=True)
    disc, anchor, eta = (
        np.array([one[place] for one in means])[:, None] + wobble[place] for place in range(3)
    )
    values = dict(zip(FIGURES, (C_K * disc - eta, disc, eta, anchor), strict=True))
    names = tuple(facts(f"{policy}-{number}/{place}", place) for place in range(len(means)))
    prompts = tuple(f"p{place:02d}" for place in range(NUM_PROMPTS))
    return Group(seed, policy, number, C_K, prompts, names, values, spreads)


def measured(*groups: Group) -> Measured:
    return Measured(tuple(groups), 1e-16, 48 * sum(len(one.checkpoints) for one in groups))
