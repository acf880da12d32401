"""Choosing arms, seeds and rounds in the text of a params.yaml, its comments kept."""

from __future__ import annotations

import io
from collections.abc import Sequence

from ruamel.yaml import YAML

from dynamicrubric.errors import UserError


def select(
    config_text: str,
    run: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
) -> str:
    """Return the text with other arms, seeds or rounds; None leaves what is there.

    Raises:
        UserError: there is no such arm.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    document = yaml.load(config_text)
    study = document["study"]
    if run is not None:
        names = [run] if isinstance(run, str) else list(run)
        for name in names:
            if name not in study["arms"]:
                raise UserError(
                    doing="choosing the arms of the study",
                    got=repr(name),
                    expected=f"one of {', '.join(study['arms'])}",
                )
        for name in list(study["arms"]):
            if name not in names:
                del study["arms"][name]
    if seeds is not None:
        study["seeds"] = list(seeds)
    if rounds is not None:
        study["rounds"] = rounds
    if (run, seeds, rounds) == (None, None, None):
        return config_text
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()
