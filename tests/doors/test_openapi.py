"""The OpenAPI page is true: whatever it allows, and much that it does not, is no fault of ours."""

from __future__ import annotations

import pytest
from fakeevaluator import FakeEvaluator
from liveserver import serving

from dynamicrubric.doors.limits import Limits

KEY = "0123456789abcdef"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", [None, KEY])
def test_schemathesis_finds_no_fault(key: str | None) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = Limits(max_responses=8, max_chars=1000, max_body_bytes=100_000)
    codes: set[int] = set()
    with serving(FakeEvaluator(), key=key, limits=limits) as live:
        schema = schemathesis.openapi.from_url(f"{live.url}/openapi.json")
        for result in schema.get_all_operations():
            operation = result.ok()
            for mode in schemathesis.GenerationMode:

                @given(case=operation.as_strategy(generation_mode=mode))
                @settings(
                    max_examples=100,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                def never_a_fault(case: object) -> None:
                    answer = case.call(headers=headers)  # type: ignore[attr-defined]
                    codes.add(answer.status_code)
                    case.validate_response(  # type: ignore[attr-defined]
                        answer,
                        checks=[
                            schemathesis.checks.not_a_server_error,
                            schemathesis.checks.load_all_checks and _conforms,
                        ],
                    )

                try:
                    never_a_fault()
                except Exception as error:
                    if "Unsatisfiable" not in type(error).__name__:
                        raise
        assert live.get("/health").status_code == 200
    assert {200, 422} <= codes
    assert not {code for code in codes if code >= 500}


def _conforms(ctx: object, response: object, case: object) -> None:
    """Check that an answer's code is one that the page names."""
    named = {str(code) for code in case.operation.definition.raw["responses"]}  # type: ignore[attr-defined]
    assert str(response.status_code) in named | {"400", "405"}  # type: ignore[attr-defined]
