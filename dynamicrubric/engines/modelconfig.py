"""Which config a backbone has, without its weights: from its folder, a GGUF file or the hub.

The hub is asked for `config.json` alone. Where that cannot be had, `backbone.shape` of the settings
stands in, and where both are there they have to agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from transformers import AutoConfig
from transformers import PretrainedConfig as ModelConfig

from dynamicrubric.errors import UserError
from dynamicrubric.hub.names import HUB
from dynamicrubric.settings import PretrainedConfig
from dynamicrubric.worlds.language.sources import SMOLLM2

CONFIG: Final = "config.json"


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
        UserError: it cannot be had, or brings code.
    """
    name = backbone.checkpoint
    if Path(name).is_dir():
        return _compared(backbone, _of_folder(name, Path(name)), name, _weights(Path(name)))
    gguf = _gguf(name)
    if gguf is not None:
        return _compared(backbone, _of_gguf(gguf), gguf.name, gguf.stat().st_size)
    cached = None if _is_file_name(name) else _from_hub(name.removeprefix(HUB), ask_hub)
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
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        total = json.loads(index.read_text(encoding="utf-8")).get("metadata", {}).get("total_size")
        if total is not None:
            return int(total)
    files = list(folder.glob("*.safetensors"))
    return sum(file.stat().st_size for file in files) if files else None


def _is_file_name(name: str) -> bool:
    return name == SMOLLM2 or name.endswith(".gguf") or name.startswith((".", "/"))


def _gguf(name: str) -> Path | None:
    if name == SMOLLM2:
        from dynamicrubric.engines.gguf import packaged_smollm2

        try:
            return packaged_smollm2()
        except UserError:
            return None
    return Path(name) if name.endswith(".gguf") and Path(name).is_file() else None


def _of_gguf(path: Path) -> ModelConfig:
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    document: dict[str, Any] = load_gguf_checkpoint(str(path), return_tensors=False)["config"]
    return _of_shape(document)


def _from_hub(name: str, ask_hub: bool) -> Path | None:
    """Return the hub's config.json of a checkpoint in the cache, or None if it cannot be had."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repository, _, revision = name.partition("@")
    try:
        return Path(
            hf_hub_download(
                repository,
                CONFIG,
                revision=revision or None,
                etag_timeout=3,
                local_files_only=not ask_hub,
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError):
        return None


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
