"""`dynamicrubric score`, `rubric` and `serve-reward`: an evaluator for files, a prompt, a server.

Only typer is imported here; what scores is imported by the command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

KindOption = Annotated[
    str, typer.Option("--evaluator", help="dynamic, static, programmatic, scalar, geval, ...")
]
ProfileOption = Annotated[
    Path, typer.Option("--profile", help="A params.yaml, or the name of one in profiles/.")
]
GeneratorOption = Annotated[
    str | None,
    typer.Option(
        "--generator",
        help="A cell, a checkpoint's folder, hub:owner/name or openai:MODEL; none: the base.",
    ),
]
VerifierOption = Annotated[
    str | None,
    typer.Option("--verifier", help="program, base or openai:MODEL; none: the profile's."),
]
UrlOption = Annotated[
    str | None, typer.Option("--base-url", help="Where openai: models are, up to and with /v1.")
]
PreparedOption = Annotated[
    Path, typer.Option("--prepared", help="Prepared data, with the base of a pretrained backbone.")
]
RubricOption = Annotated[
    Path | None, typer.Option("--rubric", help="With programmatic: a file with a rubric's JSON.")
]
RewardModelOption = Annotated[
    str | None, typer.Option("--reward-model", help="With scalar: a folder, or a hub id.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Of whatever is random.")]

PARAMS = Path("params.yaml")
PREPARED = Path("data/prepared")


def add_commands(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(score)
    app.command()(rubric)
    app.command("serve-reward")(serve_reward)


def score(
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="Response sets: a .jsonl or .parquet file.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="A new file; none: FILE with .scores.jsonl.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="jsonl or csv; none: as --out ends.")
    ] = None,
    batch_rows: Annotated[
        int, typer.Option("--batch", min=1, max=1024, help="Rows that are scored together.")
    ] = 16,
    evaluator: KindOption = "dynamic",
    profile: ProfileOption = PARAMS,
    generator: GeneratorOption = None,
    verifier: VerifierOption = None,
    base_url: UrlOption = None,
    prepared: PreparedOption = PREPARED,
    rubric_file: RubricOption = None,
    reward_model: RewardModelOption = None,
    seed: SeedOption = 0,
) -> None:
    """Score a file of response sets, with rubric and verdicts; stopped, it goes on."""
    from dynamicrubric.doors.opening import EvaluatorOptions
    from dynamicrubric.score_command import run_score

    options = EvaluatorOptions(
        evaluator, profile, generator, verifier, base_url, prepared, rubric_file, reward_model, seed
    )
    run_score(source, out, form, batch_rows, options)


def rubric(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    responses: Annotated[
        list[str] | None, typer.Option("--response", "-r", help="A response; give several.")
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="A response as a file; likewise.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    evaluator: KindOption = "dynamic",
    profile: ProfileOption = PARAMS,
    generator: GeneratorOption = None,
    verifier: VerifierOption = None,
    base_url: UrlOption = None,
    prepared: PreparedOption = PREPARED,
    rubric_file: RubricOption = None,
    reward_model: RewardModelOption = None,
    seed: SeedOption = 0,
) -> None:
    """Write the rubric of one response set, judge by it and show both."""
    from dynamicrubric.doors.opening import EvaluatorOptions
    from dynamicrubric.rubric_command import run_rubric

    options = EvaluatorOptions(
        evaluator, profile, generator, verifier, base_url, prepared, rubric_file, reward_model, seed
    )
    run_rubric(prompt, responses or [], files or [], as_json, options)


def serve_reward(
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; other than loopback needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0: any free one.")] = 8100,
    max_requests: Annotated[
        int, typer.Option(min=1, max=100_000, help="Requests at a time; more get 429.")
    ] = 64,
    max_responses: Annotated[int, typer.Option(min=1, max=4096, help="Of a set.")] = 64,
    max_chars: Annotated[int, typer.Option(min=1, help="Of the prompt and each response.")] = (
        200_000
    ),
    max_body_mib: Annotated[int, typer.Option(min=1, max=1024, help="Of a request.")] = 16,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds until 504.")] = 600.0,
    grace: Annotated[
        float, typer.Option(min=1.0, help="Seconds that running requests get at the end.")
    ] = 30.0,
    batch_sets: Annotated[int, typer.Option(min=1, max=1024, help="Scored together.")] = 16,
    window: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="Seconds that a batch waits for company.")
    ] = 0.01,
    evaluator: KindOption = "dynamic",
    profile: ProfileOption = PARAMS,
    generator: GeneratorOption = None,
    verifier: VerifierOption = None,
    base_url: UrlOption = None,
    prepared: PreparedOption = PREPARED,
    rubric_file: RubricOption = None,
    reward_model: RewardModelOption = None,
    seed: SeedOption = 0,
) -> None:
    """Serve scores over HTTP; DYNAMICRUBRIC_API_KEY is the key that callers send."""
    from dynamicrubric.doors.limits import Limits
    from dynamicrubric.doors.opening import EvaluatorOptions
    from dynamicrubric.serve_command import run_serve

    options = EvaluatorOptions(
        evaluator, profile, generator, verifier, base_url, prepared, rubric_file, reward_model, seed
    )
    limits = Limits(
        max_requests=max_requests,
        max_responses=max_responses,
        max_chars=max_chars,
        max_body_bytes=max_body_mib * 2**20,
        request_seconds=timeout,
        grace_seconds=grace,
    )
    run_serve(host, port, options, limits, max_sets=batch_sets, window_seconds=window)
