"""What the server counts, in Prometheus' form."""

from __future__ import annotations

import re
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from dynamicrubric.evaluators.base import ScoredSet

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_SETS: Final = (1, 2, 4, 8, 16, 32, 64)
_REASON: Final = re.compile(r"[a-z0-9_:]{1,60}")
_OTHER: Final = "other"


class Meters:
    """Counters of one server."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "dynamicrubric_requests", "Requests, by status", ["code"], registry=registry
        )
        self.seconds = Histogram(
            "dynamicrubric_request_seconds",
            "Time from a score request's arrival to its answer, refusals left out",
            registry=registry,
            buckets=_SECONDS,
        )
        self.in_flight = Gauge(
            "dynamicrubric_requests_in_flight", "Score requests now", registry=registry
        )
        self.batch = Histogram(
            "dynamicrubric_batch_sets", "Sets scored together", registry=registry, buckets=_SETS
        )
        self.left = Counter(
            "dynamicrubric_clients_left", "Clients that left before their answer", registry=registry
        )
        self.scores = Counter("dynamicrubric_scores", "Responses with a score", registry=registry)
        self.unscored = Counter(
            "dynamicrubric_unscored", "Responses without one", ["reason"], registry=registry
        )
        self.cost = Counter(
            "dynamicrubric_cost", "What scoring took, by what", ["what"], registry=registry
        )

    def count(self, scored: ScoredSet) -> None:
        """Count a set that was scored."""
        for score in scored.scores:
            if score.reason is None:
                self.scores.inc()
            else:
                self.unscored.labels(reason=_label(score.reason)).inc()
        for what in ("calls", "prompt_tokens", "completion_tokens", "verdicts"):
            self.cost.labels(what=what).inc(getattr(scored.cost, what))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


def _label(reason: str) -> str:
    """Return a reason as a label: there must be few of them, whatever an evaluator says."""
    return reason if _REASON.fullmatch(reason) else _OTHER
