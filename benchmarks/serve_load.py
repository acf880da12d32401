"""Many clients at once against the reward server with a slow verifier: who is lost, who waits.

    python -m benchmarks.serve_load --clients 200

The server is the real one on loopback, its verifier sleeps instead of thinking, and every client
comes back when it is told to (429, Retry-After). Printed: answers and refusals, latencies from a
client's first call to its scores, and how large the batches were. A client whose connection breaks
is lost: its call is counted under the code 0.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import httpx2
import numpy as np
import typer

from dynamicrubric.doors.binding import bound, url_of
from dynamicrubric.doors.limits import Limits
from dynamicrubric.doors.server import make_app, server_of
from dynamicrubric.engines.base import JudgeRequest
from dynamicrubric.evaluators.base import Evaluator
from dynamicrubric.evaluators.judging import Judging
from dynamicrubric.evaluators.metering import MeteredVerifier
from dynamicrubric.evaluators.rubricscores import RubricEvaluator
from dynamicrubric.evaluators.writers import FixedWriter
from dynamicrubric.rubrics import render_rubric
from dynamicrubric.types import Item, Rubric, Verdict

RUBRIC = Rubric((Item("says its number", 3), Item("is even", 1)))


class SlowVerifier:
    """Takes so long for a pass, and so much longer for each response in it."""

    def __init__(self, pass_seconds: float, response_seconds: float) -> None:
        self._pass, self._response = pass_seconds, response_seconds

    def accepts(self, criterion: str) -> bool:
        return True

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        time.sleep(self._pass + self._response * len(requests))
        return [
            [Verdict.yes(), Verdict.no() if int(one.response) % 2 else Verdict.yes()]
            for one in requests
        ]


@contextmanager
def running(evaluator: Evaluator, limits: Limits, max_sets: int) -> Iterator[str]:
    listening = bound("127.0.0.1", 0)
    app = make_app(evaluator, limits=limits, max_sets=max_sets)
    server = server_of(app, limits.grace_seconds)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield url_of(listening)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


async def one_client(
    client: httpx2.AsyncClient, number: int, responses: int, codes: Counter[int]
) -> tuple[float, list[float]]:
    """Return the seconds until this client's scores, and the scores."""
    texts = [str(number + place) for place in range(responses)]
    began = time.perf_counter()
    while True:
        try:
            answer = await client.post(
                "/v1/score", json={"prompt": f"{number}", "responses": texts}
            )
        except httpx2.TransportError:
            codes[0] += 1
            return time.perf_counter() - began, []
        codes[answer.status_code] += 1
        if answer.status_code == 200:
            return time.perf_counter() - began, answer.json()["scores"]
        assert answer.status_code == 429, answer.text
        await asyncio.sleep(float(answer.headers["retry-after"]))


async def all_clients(
    url: str, clients: int, responses: int, codes: Counter[int]
) -> list[tuple[float, list[float]]]:
    limits = httpx2.Limits(max_connections=clients)
    async with httpx2.AsyncClient(base_url=url, timeout=300, limits=limits) as client:
        calls = [one_client(client, number, responses, codes) for number in range(clients)]
        return list(await asyncio.gather(*calls))


def main(
    clients: Annotated[int, typer.Option(min=1)] = 200,
    responses: Annotated[int, typer.Option(min=1, help="Of each set.")] = 8,
    max_requests: Annotated[int, typer.Option(min=1)] = 64,
    max_sets: Annotated[int, typer.Option(min=1)] = 16,
    pass_seconds: Annotated[float, typer.Option(min=0.0)] = 0.2,
    response_seconds: Annotated[float, typer.Option(min=0.0)] = 0.005,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    verifier = MeteredVerifier(SlowVerifier(pass_seconds, response_seconds))
    judging = Judging(verifier, 1, 8, 1.0, 1.0)
    evaluator = RubricEvaluator(
        "slow", False, FixedWriter(render_rubric(RUBRIC)), judging, None, verifier
    )
    codes: Counter[int] = Counter()
    began = time.perf_counter()
    with running(evaluator, Limits(max_requests=max_requests), max_sets) as url:
        found = asyncio.run(all_clients(url, clients, responses, codes))
        metrics = httpx2.get(f"{url}/metrics").text
    seconds = time.perf_counter() - began
    right = sum(
        scores == [0.75 if (number + place) % 2 else 1.0 for place in range(responses)]
        for number, (_, scores) in enumerate(found)
    )
    figures = {name: float(value) for name, value in _lines(metrics)}
    batches = figures["dynamicrubric_batch_sets_count"]
    waits = np.array([wait for wait, _ in found])
    report = {
        "clients": clients,
        "answered_with_their_own_scores": right,
        "lost": clients - right,
        "answers_by_code": dict(sorted(codes.items())),
        "seconds": round(seconds, 2),
        "latency_seconds": {
            f"p{q}": round(float(np.percentile(waits, q)), 2) for q in (50, 90, 99, 100)
        },
        "batches": batches,
        "sets_per_batch": round(figures["dynamicrubric_batch_sets_sum"] / batches, 2),
    }
    typer.echo(json.dumps(report, indent=None if as_json else 1))
    raise typer.Exit(0 if right == clients else 1)


def _lines(text: str) -> list[tuple[str, str]]:
    return [
        (line.rpartition(" ")[0], line.rpartition(" ")[2])
        for line in text.splitlines()
        if line and not line.startswith("#")
    ]


if __name__ == "__main__":
    typer.run(main)
