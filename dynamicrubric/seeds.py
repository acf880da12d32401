"""Every random draw derives from (run seed, cell, step, prompt id, sample index).

A seed is a hash of the words that name the draw: no global state, no order dependence, and two
draws share a stream only if they share a name.

numpy is imported where a stream is made: `plan` and `validate` make none and answer sooner.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def derive_seed(*name: str | int) -> int:
    """Hash the words that name a draw to a 63-bit seed.

    Args:
        *name: what the draw is for, e.g. `(1, "train_policy", 12, "lisbon-anna-birthday", 3)`.

    Returns:
        An integer in [0, 2**63), equal on every machine and Python version.

    >>> derive_seed(1, "sample", 0) == derive_seed(1, "sample", 0)
    True
    >>> derive_seed(1, "sample", 0) == derive_seed(2, "sample", 0)
    False
    """
    text = json.dumps(name, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_for(*name: str | int) -> np.random.Generator:
    """Return a numpy generator whose stream belongs to the named draw alone."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive_seed(*name)))


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """Return `count` uniforms in [0, 1) of the stream `seed`: one for each sampled token."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(seed)).random(count)
