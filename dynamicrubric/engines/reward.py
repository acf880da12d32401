"""A reward model in this process: a sequence classifier with one output, read at the last token.

What it reads is a prompt and its response as a whole conversation. `scalar_set` reads the set in
front of the response, in the embedded world by frames of control tokens, elsewhere by
`prompts/texts/reward_set.txt`. The response to score comes last, once more, so that where it stands
in the set says nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from dynamicrubric.engines.base import PromptTokenizer
from dynamicrubric.engines.chat import closed_frame
from dynamicrubric.engines.identity import check_checkpoint
from dynamicrubric.engines.models import TRAINED, Models, check_adapter, is_adapter
from dynamicrubric.engines.tokenizer import FrameTokenizer, load_tokenizer
from dynamicrubric.errors import UserError
from dynamicrubric.hub.contents import BASE_FILES
from dynamicrubric.hub.fetch import fetch
from dynamicrubric.hub.names import parse_hub_name
from dynamicrubric.prompts.frames import reward_prompt
from dynamicrubric.prompts.roles import policy_messages, reward_set_messages

MAX_BATCH_TOKENS: Final = 16_384
"""Bound on rows x tokens of one pass, padding included."""
HEAD: Final = "score"
"""What transformers calls the classifier's last layer."""
_KIND: Final = "ForSequenceClassification"


class RewardPrompts:
    """Renders what a reward model reads: whole conversations, ended by the response's last token.

    A chat model's are its template's own, without what asks for another answer.
    """

    def __init__(self, tokenizer: PromptTokenizer) -> None:
        """Use a reward model's tokenizer.

        Raises:
            UserError: see `engines.chat.chat_frame`.
        """
        self.tokenizer = tokenizer
        self._frame = None if isinstance(tokenizer, FrameTokenizer) else closed_frame(tokenizer.hf)

    def render(self, prompt: str, response: str, shown: Sequence[str] = ()) -> list[int]:
        """Return token ids.

        Args:
            prompt: x.
            response: the response to score.
            shown: the response set, for a model that sees it.
        """
        if self._frame is None:
            assert isinstance(self.tokenizer, FrameTokenizer)
            asked = reward_prompt(self.tokenizer, prompt, shown)
            return [*asked, *self.tokenizer.content(response), self.tokenizer.eos_id]
        asking = reward_set_messages(prompt, shown) if shown else policy_messages(prompt)
        return self._frame.render([*asking, ("assistant", response)])


@dataclass(frozen=True)
class RewardModel:
    """Rewards responses.

    Attributes:
        model: a sequence classifier with one label, in evaluation mode.
        prompts: renders what it reads.
        folder: its checkpoint.
    """

    model: PreTrainedModel
    prompts: RewardPrompts
    folder: Path

    @property
    def context(self) -> int:
        """Longest text that it reads, in tokens."""
        return int(self.model.config.get_text_config().max_position_embeddings)

    def render(self, prompt: str, response: str, shown: Sequence[str] = ()) -> list[int]:
        """Return what it reads of a response; see `RewardPrompts`."""
        return self.prompts.render(prompt, response, shown)

    @torch.inference_mode()
    def rewards(self, rows: Sequence[Sequence[int]]) -> list[float | None]:
        """Return the reward of each row of token ids, in order.

        Returns:
            None where a row does not fit into the context: it is never cut.
        """
        found: list[float | None] = [None] * len(rows)
        fitting = [i for i, row in enumerate(rows) if len(row) <= self.context]
        for batch in _batches(sorted(fitting, key=lambda i: len(rows[i])), rows):
            values = self._pass([rows[i] for i in batch])
            for place, value in zip(batch, values, strict=True):
                found[place] = value
        return found

    def _pass(self, rows: Sequence[Sequence[int]]) -> list[float]:
        pad_id = int(self.model.config.get_text_config().pad_token_id)
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        device = self.model.device
        output = cast("Any", self.model)(input_ids=ids.to(device), attention_mask=mask.to(device))
        return [float(value) for value in output.logits.squeeze(-1).float()]


def load_reward_model(name: str, models: Models) -> RewardModel:
    """Load a reward model.

    Args:
        name: a folder, or `hub:owner/name` with or without @revision (`hub:` may be left out).
        models: has the base that an adapter is over.

    Raises:
        UserError: it cannot be had, brings code, or is no classifier with one label.
    """
    folder = Path(name) if Path(name).is_dir() else fetch(parse_hub_name(name), BASE_FILES).folder
    tokenizer = load_tokenizer(folder)
    if is_adapter(folder):
        check_adapter(folder)
        base = new_classifier(models.base_folder, getattr(torch, models.dtype))
        over = PeftModel.from_pretrained(base, str(folder), adapter_name=TRAINED)
        model = cast("PreTrainedModel", over)
    else:
        check_checkpoint(folder, name)
        _check_classifier(folder, name)
        model = new_classifier(folder, torch.float32)
    settle_pad(model, tokenizer)
    cast("Any", model).to("cuda" if torch.cuda.is_available() else "cpu")
    return RewardModel(model.eval(), RewardPrompts(tokenizer), folder)


def new_classifier(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Load a model's weights below a head with one output; a head that is not there is random."""
    model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(
        str(folder), num_labels=1, dtype=dtype, use_safetensors=True, trust_remote_code=False
    )
    return model


def settle_pad(model: PreTrainedModel, tokenizer: PromptTokenizer) -> None:
    """Let a classifier know what pads: it reads the last token that does not."""
    config = model.config.get_text_config()
    if config.pad_token_id is None:
        config.pad_token_id = tokenizer.pad_id


def _check_classifier(folder: Path, name: str) -> None:
    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    kinds = list(config.architectures or [])
    if any(kind.endswith(_KIND) for kind in kinds) and config.num_labels == 1:
        return
    raise UserError(
        doing=f"loading the reward model {name}",
        got=f"{', '.join(kinds) or 'no architecture'} with {config.num_labels} labels",
        expected="a sequence classifier with one label: another model's head would be random",
        remedy="train one (a study's arm `scalar` does), or name a reward model's checkpoint",
    )


def _batches(order: Sequence[int], rows: Sequence[Sequence[int]]) -> list[list[int]]:
    batches: list[list[int]] = []
    for index in order:  # shortest first, so the newest row is the longest of its batch
        full = batches and (len(batches[-1]) + 1) * len(rows[index]) > MAX_BATCH_TOKENS
        if full or not batches:
            batches.append([])
        batches[-1].append(index)
    return batches
