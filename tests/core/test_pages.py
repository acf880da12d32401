"""What the README and the pages beside it say exists: links, commands, options, arms, figures."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from dynamicrubric import cli, enginesettings
from dynamicrubric.config import load_config
from dynamicrubric.data.formats import Origin, format_of, parse_row
from dynamicrubric.data.rows import AnchorRow
from dynamicrubric.metrics import ALL_ROUND_METRICS
from flows import __main__ as flows_cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *DOCS,
    *(ROOT / folder / "README.md" for folder in ("benchmarks", "data", "studies")),
]
LONGEST_README = 300
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
APPS = {"dynamicrubric": cli.app, "python -m flows": flows_cli.app}
VARIABLES = {"ARMS", "CRON", "GROUP", "PROFILE", "PYTEST_ARGS", "PYTHON", "ROUNDS", "SEEDS"}
VARIABLES |= {"TIMEZONE", "TORCH_INDEX", "VLLM", "WORKERS"}


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def in_code() -> set[str]:
    """Return what the README and the pages of docs/ name in code."""
    return {code for name in NAMES for code in CODE.findall(text(name))}


def commands(name: str, start: str) -> Iterator[list[str]]:
    """Yield the words of each command in code that begins with some words, without them."""
    blocks = BLOCK.findall(text(name))
    lines = [line.split("#")[0] for block in blocks for line in block.splitlines()]
    spans = CODE.findall(BLOCK.sub("", text(name)))
    for code in [re.sub(r"<[^>]*>", "X", code) for code in (*lines, *spans)]:
        for part in re.split(r"&&|\||;", code):
            if re.match(rf"{re.escape(start)}(\s|$)", part.strip()):
                yield part.strip().removeprefix(start).split()


def unknown_words(app: typer.Typer, words: list[str]) -> list[str]:
    """Return the subcommand or options of a command line that a command does not have."""
    command = typer.main.get_command(app)
    rest = list(words)
    while (commands := getattr(command, "commands", None)) is not None:  # a group of commands
        if not rest:
            return []
        name = rest.pop(0)
        found = commands.get(name)
        if found is None:
            return [] if name == "--help" else [name]
        command = found
    known = {option for param in command.params for option in param.opts} | {"--help"}
    return [word for word in rest if word.startswith("--") and word.split("=")[0] not in known]


@pytest.mark.parametrize("name", NAMES)
def test_links_of_a_page_lead_somewhere(name: str) -> None:
    here = (ROOT / name).parent
    local = [link for link in LINK.findall(text(name)) if "://" not in link]
    missing = [link for link in local if not (here / link.partition("#")[0]).exists()]
    assert missing == []


@pytest.mark.parametrize("name", NAMES)
def test_make_commands_of_a_page_are_in_the_makefile(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    for words in commands(name, "make"):
        given = {word.partition("=")[0] for word in words if re.match(r"[A-Z_]+=", word)}
        assert given <= VARIABLES
        named = [word for word in words if re.fullmatch(r"[a-z-]+", word)]
        assert set(named) <= targets


def test_variables_of_make_are_used_in_the_makefile() -> None:
    assert {name for name in VARIABLES if f"$({name})" not in text("Makefile")} == set()


@pytest.mark.parametrize("start", APPS)
@pytest.mark.parametrize("name", NAMES)
def test_commands_of_a_page_have_what_it_names(name: str, start: str) -> None:
    for words in commands(name, start):
        assert (words, unknown_words(APPS[start], words)) == (words, [])


def test_a_command_that_is_not_there_is_noticed() -> None:
    assert unknown_words(cli.app, ["data", "prepare", "x", "--against", "y"]) == []
    assert unknown_words(cli.app, ["data", "prepaer", "x"]) == ["prepaer"]
    assert unknown_words(cli.app, ["validate", "--parms=x"]) == ["--parms=x"]


@pytest.mark.parametrize("name", NAMES)
def test_scripts_of_a_page_are_there(name: str) -> None:
    scripts = [words[0] for words in commands(name, "python") if words and words[0].endswith(".py")]
    assert [script for script in scripts if not (ROOT / script).is_file()] == []
    tests = [word for words in commands(name, "pytest") for word in words if "/" in word]
    assert [test for test in tests if not (ROOT / test.partition("::")[0]).exists()] == []


def test_readme_is_short_and_leads_to_every_page() -> None:
    readme = text("README.md")
    assert len(readme.splitlines()) <= LONGEST_README
    linked = set(LINK.findall(readme))
    assert [page.name for page in DOCS if f"docs/{page.name}" not in linked] == []


def test_arms_of_the_docs_are_those_of_the_settings() -> None:
    config = load_config(ROOT / "params.yaml")
    table = text("docs/arms.md").partition("| --- | --- |\n")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in CODE.findall(row.split("|")[1])}
    assert len(named) > 10
    assert named <= set(config.study.arms)
    assert set(config.study.arms) <= in_code()
    groups = set(re.findall(r"GROUP=([a-z_]+)", text("docs/arms.md")))
    assert groups <= set(config.study.groups)
    default = re.search(r"`default`, which is ([^|]+)\|", text("docs/arms.md"))
    assert default is not None
    assert set(CODE.findall(default[1])) == {
        arm for selection in config.study.groups["default"] for arm in selection.arms
    }


def test_metrics_of_the_docs_are_those_of_the_list() -> None:
    table = text("docs/comparing.md").partition("| metric | meaning |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in CODE.findall(row.split("|")[1])]
    assert len(named) > 8
    assert set(named) <= set(ALL_ROUND_METRICS)
    assert set(ALL_ROUND_METRICS) <= in_code()


def test_engines_of_the_docs_are_those_of_the_settings() -> None:
    table = text("docs/real-models.md").partition("| engine |")[2].partition("\n\n")[0]
    named = {CODE.findall(row.split("|")[1])[0] for row in table.splitlines()[2:]}
    unions = (enginesettings.VerifierEngine, enginesettings.GeneratorEngine)
    kinds = {
        get_args(member.model_fields["kind"].annotation)[0]
        for union in unions
        for member in get_args(get_args(union)[0])
    }
    assert named == kinds | {"programmatic"}


def test_row_of_the_docs_is_one_that_is_read() -> None:
    line = next(line for line in text("docs/data.md").splitlines() if line.startswith("{"))
    fields: dict[str, Any] = json.loads(line)
    shape = format_of(fields)
    assert shape is not None
    row = parse_row(fields, shape, Origin("docs", 1))
    assert isinstance(row, AnchorRow)
    assert row.responses[0] == "An apple."
    assert row.tiers == (1, 2)


def test_figures_of_the_readme_are_those_of_the_study() -> None:
    with (ROOT / "studies/postcards/metrics.csv").open(encoding="utf-8", newline="") as stream:
        figures = {
            (row["arm"], row["metric"], int(row["round"])): float(row["value"])
            for row in csv.DictReader(stream)
            if row["seed"] == "1" and row["value"]
        }
    table = text("README.md").partition("| arm | true quality, round 0 |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    assert [row[0] for row in rows] == ["`coevolved`", "`stale`", "`static`", "`frozen`"]
    columns = [("true_quality", t) for t in range(4)] + [("delta_gap", t) for t in (1, 2, 3)]
    for arm, *shown in rows:
        study = [f"{figures[arm.strip('`'), metric, t]:.3f}" for metric, t in columns]
        assert shown == study
