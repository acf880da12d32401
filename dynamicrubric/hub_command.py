"""`dynamicrubric hub`: shares policies, generators and prepared data on the Hugging Face hub.

Only typer is imported here; what reads artefacts or calls the hub is imported by the command.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dynamicrubric.errors import UserError

app = typer.Typer(help="Share what you trained on the Hugging Face hub.", no_args_is_help=True)


class What(StrEnum):
    """What can be shared."""

    POLICY = "policy"
    GENERATOR = "generator"
    DATA = "data"


@app.callback()
def main() -> None:
    """Share what you trained on the Hugging Face hub."""


@app.command()
def push(
    what: Annotated[What, typer.Argument(help="What is shared.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="CELL_OR_PATH",
            help="A cell such as coevolved-s1-r2, or the folder of an artefact; of data always a "
            "folder, such as data/prepared.",
        ),
    ],
    repo: Annotated[str, typer.Option("--repo", help="Where to: owner/name.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Push nothing, ask nobody: show what would be pushed.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="A new folder that keeps what is pushed.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Replace what a repository with content has.")
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Everybody may see a repository that is created.")
    ] = False,
    license_id: Annotated[
        str | None, typer.Option("--license", help="Its licence, such as apache-2.0 or cc-by-4.0.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", help="owner/name of an adapter's base, if the run does not say."),
    ] = None,
    params: Annotated[Path, typer.Option("--params", help="The study's settings.")] = Path(
        "params.yaml"
    ),
) -> None:
    """Write weights or data with a card filled from the run, and push them (with HF_TOKEN)."""
    from dynamicrubric.hub.client import require_token
    from dynamicrubric.hub.names import check_repository

    check_repository(repo)
    if not dry_run:
        require_token(f"pushing to {repo}")
    with _folder(out) as folder:
        if what is What.DATA:
            _write_data(folder, name, repo, license_id, base)
        else:
            from dynamicrubric.hub.modelfolder import write_model

            write_model(
                folder, Path(), params, "policy" if what is What.POLICY else "generator", name,
                repository=repo, license_id=license_id, base=base,
            )  # fmt: skip
        _show(folder, with_card=dry_run)
        if dry_run:
            typer.echo(f"Nothing was pushed: this is what would go to {repo}.")
            return
        _push(folder, what, name, repo, update=update, private=not public)


def _write_data(
    folder: Path, name: str, repo: str, license_id: str | None, base: str | None
) -> None:
    from dynamicrubric.hub.dataset import write_dataset

    if base is not None:
        raise typer.BadParameter("data have no base model", param_hint="--base")
    write_dataset(folder, Path(name), repository=repo, license_id=license_id)


def _push(folder: Path, what: What, name: str, repo: str, *, update: bool, private: bool) -> None:
    from dynamicrubric.hub.push import push_folder

    done = push_folder(
        folder,
        repo,
        "dataset" if what is What.DATA else "model",
        update=update,
        private=private,
        message=f"{what.value} {Path(name).name}, pushed by DynamicRubric",
    )
    typer.echo(f"Pushed to {done.url}")
    typer.echo(f"To load exactly this: hub:{repo}@{done.commit}")


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Give an empty folder: one that stays, if it is named.

    Raises:
        UserError: there is something at its name.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="dynamicrubric-hub-") as scratch:
            yield Path(scratch)
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(
            doing=f"writing {out}",
            got="something that is there",
            expected="a new or an empty folder",
            remedy="name another one with --out",
        )
    out.mkdir(parents=True, exist_ok=True)
    yield out


def _show(folder: Path, *, with_card: bool) -> None:
    """List the files, and print the card where nobody will see it otherwise."""
    for path in sorted(folder.rglob("*")):
        typer.echo(f"{path.stat().st_size:>12,}  {path.relative_to(folder)}")
    if with_card:
        typer.echo((folder / "README.md").read_text(encoding="utf-8"))
