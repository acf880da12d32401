"""The OpenAPI page is true: whatever it allows, and much that it does not, is no fault of ours."""

from __future__ import annotations

from typing import Any

import pytest
from fakeevaluator import FakeEvaluator
from liveserver import serving

from dynamicrubric.doors.limits import Limits

KEY = "0123456789abcdef"
ALWAYS = ("405",)
"""What no page names: another method."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", [None, KEY])
def test_schemathesis_finds_no_fault(key: str | None) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.specs.openapi import checks

    answers_as_described = [checks.content_type_conformance, checks.response_schema_conformance]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = Limits(max_responses=8, max_chars=1000, max_body_bytes=100_000)
    codes: set[int] = set()

    def check(operation: Any, mode: Any) -> None:
        named = {*operation.definition.raw["responses"], *ALWAYS}

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=100,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def never_a_fault(case: Any) -> None:
            answer = case.call(headers=headers)
            codes.add(answer.status_code)
            assert answer.status_code < 500, answer.text
            assert str(answer.status_code) in named, answer.text
            if str(answer.status_code) not in ALWAYS:
                case.validate_response(answer, checks=answers_as_described)

        try:
            never_a_fault()
        except Unsatisfiable:
            assert mode is schemathesis.GenerationMode.NEGATIVE, "nothing can be sent"

    with serving(FakeEvaluator(), key=key, limits=limits) as live:
        schema = schemathesis.openapi.from_url(f"{live.url}/openapi.json")
        for result in schema.get_all_operations():
            for mode in schemathesis.GenerationMode:
                check(result.ok(), mode)
        assert live.get("/health").status_code == 200
    assert {200, 422} <= codes
