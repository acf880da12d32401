"""Where a step finds its engines: told by its launcher, and no part of what the step makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from dynamicrubric.engines.access import EndpointPlace
from dynamicrubric.engines.vllm_process import VllmPlace
from dynamicrubric.errors import UserError
from dynamicrubric.runtime import RuntimeConfig
from dynamicrubric.settings import Section


class EnginePlaces(Section):
    """Places of engines, as `runtime` in params.yaml has them, and the step's log folder."""

    vllm: VllmPlace = VllmPlace()
    endpoints: dict[str, EndpointPlace] = Field(default_factory=dict)
    log_dir: str = "."

    def endpoint(self, model: str) -> EndpointPlace:
        """Return where a model is served.

        Raises:
            UserError: it has no address.
        """
        if model not in self.endpoints:
            raise UserError(
                doing=f"looking for the endpoint of the model {model!r}",
                got=", ".join(map(repr, self.endpoints)) or "none at all",
                expected="its address in runtime.endpoints of params.yaml",
            )
        return self.endpoints[model]


def places_document(runtime: RuntimeConfig, log_dir: Path) -> dict[str, Any]:
    """Return the places as an argument of a step: values that JSON can hold, and no key.

    A process of the step gets its share of what may be asked of an endpoint: processes do not know
    of each other, and at most slots x processes run at a time.
    """
    parts = runtime.slots * runtime.processes
    shares = {model: _share(place, parts) for model, place in runtime.endpoints.items()}
    places = EnginePlaces(vllm=runtime.vllm, endpoints=shares, log_dir=str(log_dir))
    return places.model_dump(mode="json")


def _share(place: EndpointPlace, parts: int) -> EndpointPlace:
    return place.model_copy(
        update={
            "requests_per_minute": place.requests_per_minute / parts,
            "max_concurrency": max(1, place.max_concurrency // parts),
        }
    )
