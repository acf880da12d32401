"""Checkpoints as models: whole ones, or an adapter over a base that all roles of a step share.

A role over a pretrained base is a PEFT adapter folder with a tokenizer. The base is loaded once a
step: its weights are frozen, so every role's model refers to the same tensors and adds only its
own adapter. Nothing is switched on and off, so no role can be left with another one's adapter.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel
from transformers import __version__ as transformers_version

from dynamicrubric.engines.base import PromptTokenizer
from dynamicrubric.engines.identity import EngineIdentity, checkpoint_hash
from dynamicrubric.engines.tokenizer import load_tokenizer
from dynamicrubric.engines.transformers import TransformersEngine, load_model
from dynamicrubric.errors import UserError
from dynamicrubric.worlds.base import BaseModelFiles

if TYPE_CHECKING:
    from dynamicrubric.config import AdapterConfig

ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
TRAINED: Final = "default"
"""PEFT's name of the adapter that is trained; TRL adds `ref`, a copy, as the KL's reference."""
_PLAIN: Final[dict[str, tuple[object, ...]]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian"),  # the others rewrite the base's weights
    "megatron_config": (None,),  # imports a module by its name
    "layer_replication": (None,),
}
"""What an adapter's config may say, the default first."""
BASE_ADDRESS: Final = "data/prepared/base"
"""Where adapter files say their base is: relative to the project, so that no machine's path is in
an artefact."""


def is_adapter(directory: Path) -> bool:
    """Say whether a checkpoint is an adapter over a base."""
    return (directory / ADAPTER_CONFIG).is_file()


@dataclass
class Models:
    """Loads the checkpoints of one step.

    Attributes:
        files: the base that adapters are over; None in a world whose checkpoints are whole models.
    """

    files: BaseModelFiles | None = None
    _base: PreTrainedModel | None = field(default=None, repr=False)
    _base_hash: str = field(default="", repr=False)

    @classmethod
    def over(cls, base: PreTrainedModel, files: BaseModelFiles) -> Models:
        """Return models over a frozen base in memory; of its folder, config and tokenizer count."""
        return cls(files, base)

    def base(self) -> PreTrainedModel:
        """Return the frozen base, loaded once.

        Raises:
            UserError: there is none.
        """
        if self._base is None:
            files = self._files()
            model = load_model(files.folder, getattr(torch, files.dtype))
            self._base = model.requires_grad_(False)
        return self._base

    @property
    def base_folder(self) -> Path:
        """Folder of the base.

        Raises:
            UserError: there is none.
        """
        return self._files().folder

    @property
    def dtype(self) -> str:
        """Number format of the base in memory."""
        return self._files().dtype

    def _files(self) -> BaseModelFiles:
        if self.files is None:
            raise UserError(
                doing="loading the base model",
                got="prepared data without one",
                expected="the prepared data of a world with a pretrained backbone",
                remedy="make the prepared data anew",
            )
        return self.files

    def load(self, directory: Path, *, trainable: bool = False) -> PreTrainedModel:
        """Load a checkpoint: a whole model, or the base with an adapter, which passes for one.

        Raises:
            UserError: see `check_adapter`.
        """
        if not is_adapter(directory):
            return load_model(directory)
        check_adapter(directory)
        model = PeftModel.from_pretrained(
            _sharing(self.base()), str(directory), adapter_name=TRAINED, is_trainable=trainable
        )
        return cast("PreTrainedModel", self._settled(model).eval())

    def new_adapter(self, settings: AdapterConfig, seed: int) -> PeftModel:
        """Return the base with a new adapter, which changes nothing before it is trained."""
        torch.manual_seed(seed)
        config = lora_config(settings)
        model = get_peft_model(_sharing(self.base()), config, adapter_name=TRAINED)
        assert isinstance(model, PeftModel)
        return self._settled(model)

    def _settled(self, model: PeftModel) -> PeftModel:
        """Say where the base is, so that PEFT asks no hub for it when a checkpoint is saved."""
        model.peft_config[TRAINED].base_model_name_or_path = str(self._files().folder)
        return model

    def identity(
        self, role: str, directory: Path | None = None, **settings: object
    ) -> EngineIdentity:
        """Return which engine a model in this process is.

        Args:
            role: policy, generator or verifier.
            directory: its checkpoint; None: the base.
            settings: what else may move an answer.
        """
        if directory is not None and not is_adapter(directory):
            checkpoint = checkpoint_hash(directory)
        else:
            self._base_hash = self._base_hash or checkpoint_hash(self.base_folder)
            adapter = "" if directory is None else f"+{checkpoint_hash(directory)}"
            checkpoint, settings = self._base_hash + adapter, {"dtype": self.dtype, **settings}
        return EngineIdentity(role, checkpoint, f"transformers {transformers_version}", settings)

    def engine(self, directory: Path) -> TransformersEngine:
        """Load model and tokenizer of a checkpoint."""
        return TransformersEngine(self.load(directory), load_tokenizer(directory))


def check_adapter(directory: Path) -> None:
    """Refuse an adapter that could run code, or change the base that the other roles share.

    Raises:
        UserError: weights in another format than safetensors, or an adapter other than plain LoRA.
    """
    config = json.loads((directory / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    odd = [key for key, plain in _PLAIN.items() if config.get(key, plain[0]) not in plain]
    whole = (directory / ADAPTER_WEIGHTS).is_file()
    if odd or not whole:
        raise UserError(
            doing=f"loading the adapter {directory}",
            got=f"{odd[0]} = {config[odd[0]]!r}" if odd else f"no {ADAPTER_WEIGHTS}",
            expected="a plain LoRA adapter, its weights as safetensors",
            remedy="make it anew, or convert it",
        )


def lora_config(settings: AdapterConfig) -> LoraConfig:
    """Return PEFT's settings of a role's adapter."""
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules),
        bias="none",
        task_type="CAUSAL_LM",
    )


def _sharing(model: PreTrainedModel) -> PreTrainedModel:
    """Copy a model's modules, but none of its weights."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def save_checkpoint(model: Any, tokenizer: PromptTokenizer, out_dir: Path) -> None:  # noqa: ANN401
    """Write a role's checkpoint: the trained adapter alone if it has one, else the whole model."""
    if isinstance(model, PeftModel):
        model.save_pretrained(
            str(out_dir), selected_adapters=[TRAINED], save_embedding_layers=False
        )
        (out_dir / "README.md").unlink(missing_ok=True)  # PEFT's, about nothing
        _settle(out_dir / ADAPTER_CONFIG)
        ends = {"eos_token_id": sorted(tokenizer.end_ids)}  # which a whole model's folder has
        (out_dir / "generation_config.json").write_text(json.dumps(ends) + "\n", encoding="utf-8")
    else:
        model.save_pretrained(str(out_dir))
    tokenizer.hf.save_pretrained(str(out_dir))


def _settle(path: Path) -> None:
    """Write an adapter's config in one form: PEFT writes sets in any order, and absolute paths."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = BASE_ADDRESS
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")
