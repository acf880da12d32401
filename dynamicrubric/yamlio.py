"""The one YAML loader: YAML 1.2, as DVC reads it, so that `1e-5` is a number and `no` is a string.

PyYAML speaks YAML 1.1 and would read both differently from DVC, and the two would then disagree
about the same params.yaml.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.error import YAMLError

from dynamicrubric.durable import naming
from dynamicrubric.errors import UserError

_KINDS = {list: "a list", str: "a text", int: "a number", float: "a number"}


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML 1.2 mapping.

    Args:
        path: file to read.

    Returns:
        The document as plain dicts, lists and scalars.

    Raises:
        UserError: the file is absent, unreadable, not YAML, has a repeated key, or is no mapping.
    """
    return parse_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a UTF-8 file, or raise a UserError that names it."""
    doing = f"reading {path}"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(
            doing=doing,
            got="no such file",
            expected="a YAML file",
            remedy=f"run from the project's top folder, or copy a profile to params.yaml{_there()}",
        ) from None
    except IsADirectoryError:
        raise UserError(
            doing=doing, got="a folder", expected="a YAML file", remedy="name a file in it"
        ) from None
    except OSError as error:
        raise UserError(
            doing=doing,
            got=error.strerror or str(error),
            expected="a file that can be read",
            remedy="look at the path and at its permissions",
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(
            doing=doing, got=str(error), expected="UTF-8 text", remedy="mend the file"
        ) from None


def _there() -> str:
    """Return the names of the profiles in this folder, as the end of a sentence."""
    names = sorted(path.stem for path in Path("profiles").glob("*.yaml"))
    return f" (there are {', '.join(names)})" if names else ""


def parse_yaml(text: str, name: str) -> dict[str, Any]:
    """Read the text of a YAML 1.2 mapping; `name` says in errors where it is from.

    Raises:
        UserError: the text is not YAML, has a repeated key, or is no mapping.
    """
    document = _parse(YAML(typ="safe", pure=True), text, name)
    if not isinstance(document, dict):
        raise UserError(
            doing=f"reading {name}",
            got="an empty file"
            if document is None
            else _KINDS.get(type(document), "a single value"),
            expected="a mapping of keys to values",
            remedy="start from a file in profiles/",
        )
    return document


def edit_yaml(text: str, name: str, values: Mapping[tuple[str, ...], Any]) -> str:
    """Set some keys of a YAML document's text; its comments, order and styles stay as they are.

    Args:
        text: the document, a mapping; of those named by `values` all parents exist.
        name: says in errors where it is from.
        values: new value by path of keys; None removes the key. Lists are written on one line.

    Raises:
        UserError: the text is not YAML.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    document = _parse(yaml, text, name)
    for (*parents, last), value in values.items():
        section = document
        for key in parents:
            section = section[key]
        if value is None:
            section.pop(last, None)
        else:
            section[last] = _on_one_line(value)
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _on_one_line(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    if not isinstance(value, list):
        return value
    listed = CommentedSeq(value)
    listed.fa.set_flow_style()
    return listed


def _parse(yaml: YAML, text: str, name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        return yaml.load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        # ValueError: a number with thousands of digits, a date that does not exist.
        raise UserError(
            doing=f"reading {name}",
            got=_plain(error),
            expected="valid YAML 1.2 with each key once",
            remedy="mend the line named",
        ) from None


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return a mapping as block-style YAML 1.2, keys in the order given."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel types it None
    stream = io.StringIO()
    yaml.dump(dict(document), stream)
    return stream.getvalue()


def dump_yaml(document: Mapping[str, Any], path: Path, *, header: str = "") -> None:
    """Write a mapping as block-style YAML 1.2, keys in the order given; see `replace_text`."""
    replace_text(path, header + yaml_text(document))


def replace_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically.

    Raises:
        UserError: the folder does not exist, or the path is a folder.
    """
    if not path.parent.is_dir() or path.is_dir():
        raise UserError(
            doing=f"writing {path}",
            got="no folder of that name" if not path.is_dir() else "a folder",
            expected="the name of a file in a folder that exists",
        )
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with naming(path), temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _plain(error: Exception) -> str:
    """Put a loader's message on one line, without its advice on switching the check off."""
    text = " ".join(str(error).split()).replace(' in "<unicode string>",', " at")
    return re.sub(r" To suppress this check see: \S+", "", text)
