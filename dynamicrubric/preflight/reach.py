"""Whether what a profile wants from elsewhere is there or answers: endpoints, and the hub."""

from __future__ import annotations

import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dynamicrubric.config import Config, LanguageConfig, PretrainedConfig
from dynamicrubric.engines.modelconfig import cached_weights, hub_checkpoint
from dynamicrubric.enginesettings import OpenAI, VllmServerVerifier
from dynamicrubric.errors import UserError
from dynamicrubric.estimate import PREPARED_DIR
from dynamicrubric.hub.names import HUB, parse_hub_name
from dynamicrubric.preflight.facts import Check
from dynamicrubric.preflight.roles import ROLES, Arms
from dynamicrubric.preflight.work import read_record

TIMEOUT_SECONDS: Final = 3.0
_SERVER_ERROR: Final = 500
_MADE_FROM: Final = ("responses_per_set", "min_rubric_items", "max_rubric_items")


def reach_checks(config: Config, arms: Arms, root: Path) -> tuple[list[Check], bool]:
    """Look whether the endpoints that arms name, and the hub, answer.

    Args:
        config: the profile.
        arms: its arms.
        root: the project's folder, where the data may have been prepared.

    Returns:
        What was found, and whether the hub can be asked.
    """
    found: list[Check] = []
    for address in _addresses(config, arms):
        problem = why_unreachable(f"{address.rstrip('/')}/models")
        shown = re.sub(r"//[^/@]*@", "//", address)  # a key does not belong there, nor here
        found.append(_check("endpoints", shown, problem, "start it, or name another address"))
    try:
        wanted = hub_names(config)
    except UserError as error:
        return [*found, Check.refused("endpoints", error)], False
    if not wanted:
        return found, False
    problem = _why_no_hub()
    if problem is None:
        found.append(_check("endpoints", f"the hub, for {_listed(wanted)}", None, ""))
    else:
        found += _without_hub(config, wanted, problem, root)
    return found, problem is None


def _addresses(config: Config, arms: Arms) -> Iterator[str]:
    """Yield the address of each endpoint that serves a role of an arm, each once."""
    engines = [
        getattr(arm.recipe, role).engine for arm in arms.values() for role in ROLES if arm.has(role)
    ]
    models = [one.model for one in engines if isinstance(one, OpenAI | VllmServerVerifier)]
    yield from dict.fromkeys(config.runtime.endpoints[model].base_url for model in models)


def hub_names(config: Config) -> list[str]:
    """Return what a config wants from the hub: data sets, and a backbone that is no local file.

    Raises:
        UserError: one is no name.
    """
    if not isinstance(config.world, LanguageConfig):
        return []
    assert isinstance(config.backbone, PretrainedConfig)
    sources = [*config.world.anchors, *config.world.against]
    found = {name: parse_hub_name(name) for name in sources if name.startswith(HUB)}
    base = hub_checkpoint(config.backbone.checkpoint)
    if base is not None:
        found[config.backbone.checkpoint] = base
    return [name for name, parsed in found.items() if not parsed.folder]


def _without_hub(config: Config, wanted: list[str], problem: str, root: Path) -> Iterator[Check]:
    """Yield what can do without the hub as a note, and what cannot as a problem."""
    assert isinstance(config.backbone, PretrainedConfig)
    name, prepared = config.backbone.checkpoint, is_prepared(config, root)
    there = wanted if prepared else [name] if name in wanted and _is_cached(name) else []
    if there:
        where = f"{PREPARED_DIR} is finished" if prepared else "its cache has it"
        found = f"the hub, for {_listed(there)}: {problem}; {where}"
        yield Check("endpoints", "note", found)
    missing = [one for one in wanted if one not in there]
    if missing:
        remedy = "check the network, or download them and name the files in the profile"
        yield _check("endpoints", f"the hub, for {_listed(missing)}", problem, remedy)


def _is_cached(checkpoint: str) -> bool:
    return cached_weights(parse_hub_name(checkpoint)) is not None


def is_prepared(config: Config, root: Path) -> bool:
    """Say whether the data of this study are prepared: then nobody reads their sources again."""
    record = read_record(root / PREPARED_DIR / "record.json") or {}
    made_from = {
        "world": config.world.model_dump(mode="json"),
        "backbone": config.backbone.model_dump(mode="json"),
        **{name: getattr(config.recipe, name) for name in _MADE_FROM},
    }
    identity = record.get("identity")
    return isinstance(identity, dict) and made_from.items() <= identity.items()


def _why_no_hub() -> str | None:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE is set"
    return why_unreachable(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))


def _listed(names: list[str]) -> str:
    return ", ".join(names)


def _check(area: str, name: str, problem: str | None, remedy: str) -> Check:
    if problem is None:
        return Check(area, "ok", f"{name}: answers")
    return Check(area, "problem", f"{name}: {problem}", remedy)


def why_unreachable(address: str) -> str | None:
    """Return why nothing answers at an address, or None if something does, whatever it says.

    Looking up a name has no time limit of its own, so the whole of it has one.
    """
    if not address.startswith(("http://", "https://")):
        return "no http or https address"
    answers: list[str | None] = []
    asking = threading.Thread(target=lambda: answers.append(_ask(address)), daemon=True)
    asking.start()
    asking.join(2 * TIMEOUT_SECONDS)
    return answers[0] if answers else f"no answer within {2 * TIMEOUT_SECONDS:.0f} s"


def _ask(address: str) -> str | None:
    request = urllib.request.Request(address, method="GET")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        # One that wants a key, or has no such page, is there; a gateway's 502 is not it.
        return None if error.code < _SERVER_ERROR else f"answers {error.code} {error.reason}"
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return f"cannot be reached: {' '.join(str(reason).split())[:120]}"
