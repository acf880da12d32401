"""The transformers engine: batched sampling with a seed for each request, and log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
)

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import GenerateRequest, Generation, JsonSchema, PromptTokenizer
from dynamicrubric.engines.grammar import Grammar
from dynamicrubric.engines.identity import check_checkpoint
from dynamicrubric.engines.thinking import opens_thinking, without_thinking
from dynamicrubric.engines.tokenizer import load_tokenizer
from dynamicrubric.seeds import uniforms
from dynamicrubric.verdicts import UnscoredReason

MAX_BATCH_TOKENS = 65_536
"""Bound on rows x (prompt + completion) tokens of one batch."""

PADDING_A_STEP = {"cpu": 32, "cuda": 256}
"""Tokens of padding that take about as long as one decoding step, which reads all weights.

Another batch takes as many steps as a completion may have; more padding than those is not worth it.
"""

MAX_BATCH_ROWS = 128
MAX_BATCH_LOGITS = 2**27
"""Bounds on the rows, and on the logits, of one pass that measures log-probabilities."""


class SeededSampler(LogitsProcessor):
    """Samples by inverse CDF with one uniform for each row and position.

    `generate` draws from one global stream, so a row's tokens depend on its neighbours. Here a
    row's uniforms come from its own seed; the token chosen is left as the only possible one, and
    greedy decoding takes it. Tokens below `min_p` times the likeliest one's probability are left
    out first, as in transformers' MinPLogitsWarper.
    """

    def __init__(self, draws: torch.Tensor, sampling: Sampling, prompt_length: int) -> None:
        """Take `draws` of shape (rows, max_tokens), uniform in [0, 1)."""
        self._draws = draws
        self._sampling = sampling
        self._prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores of shape (rows, vocabulary) with one finite entry a row."""
        position = input_ids.shape[1] - self._prompt_length
        shares = torch.softmax(scores.double() / self._sampling.temperature, dim=-1)
        floor = self._sampling.min_p * shares.amax(dim=-1, keepdim=True)
        cumulative = shares.masked_fill(shares < floor, 0.0).cumsum(dim=-1)
        target = self._draws[:, position].unsqueeze(1) * cumulative[:, -1:]
        chosen = torch.searchsorted(cumulative, target, right=True)
        chosen = chosen.clamp(max=scores.shape[1] - 1)
        return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)


def load_model(name: Path | str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Load a causal language model from a folder or hub id: safetensors only, no remote code.

    It is put where TRL puts a model that it trains: on the GPU of this process if there is one.

    Raises:
        UserError: the folder is not there, which would be looked for on the hub, or is no
            checkpoint, or brings code.
    """
    if isinstance(name, Path):
        check_checkpoint(name)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        str(name), dtype=dtype, use_safetensors=True, trust_remote_code=False
    )
    cast("Any", model).to("cuda" if torch.cuda.is_available() else "cpu")
    model.eval()
    return model


class TransformersEngine:
    """Generates with a model in this process."""

    def __init__(self, model: PreTrainedModel, tokenizer: PromptTokenizer) -> None:
        """Use a loaded model; it may be one that a trainer is changing."""
        self.model = model
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, directory: Path) -> TransformersEngine:
        """Load model and tokenizer of a checkpoint folder."""
        return cls(load_model(directory), load_tokenizer(directory))

    @property
    def context(self) -> int | None:
        """Longest prompt and completion together, in tokens; None where the model names none."""
        config = getattr(self.model, "config", None)
        text = None if config is None else config.get_text_config()
        return getattr(text, "max_position_embeddings", None)

    @torch.no_grad()
    def generate(
        self,
        requests: Sequence[GenerateRequest],
        sampling: Sampling,
        schema: JsonSchema | None = None,
    ) -> list[Generation]:
        """Return one generation for each request, in order.

        Requests are batched by prompt length, under a token budget and without much padding;
        results are joined by index.
        A prompt that leaves no room for a token fails as "too_long" and takes no other with it; a
        completion that fills the room is cut there, as at its limit.

        Args:
            requests: what to complete.
            sampling: how.
            schema: what completions are kept to; see `engines.grammar`.
        """
        grammar = None
        if schema is not None:
            width = int(self.model.config.get_text_config().vocab_size)
            grammar = Grammar(self.tokenizer.hf, width, schema)
        limits = [self._limit(request, sampling.max_tokens) for request in requests]
        failed = Generation.failed(UnscoredReason.TOO_LONG)
        done = {i: failed for i, limit in enumerate(limits) if limit <= 0}
        order = sorted(
            (i for i in range(len(requests)) if i not in done),
            key=lambda i: len(requests[i].prompt_ids),
        )
        for batch in self._batches(order, requests, limits):
            generations = self._generate_batch(
                [requests[i] for i in batch], sampling, grammar, limits[batch[0]]
            )
            done.update(zip(batch, generations, strict=True))
        assert len(done) == len(requests), "a request got no generation"
        return [done[i] for i in range(len(requests))]

    def _limit(self, request: GenerateRequest, max_tokens: int) -> int:
        """Return how many tokens a completion may have; 0 or less if there is no room."""
        if self.context is None:
            return max_tokens
        return min(max_tokens, self.context - len(request.prompt_ids))

    def _batches(
        self, order: Sequence[int], requests: Sequence[GenerateRequest], limits: Sequence[int]
    ) -> list[list[int]]:
        """Return batches of requests with one limit, so that no neighbour shortens another."""
        worth = PADDING_A_STEP.get(self.model.device.type, PADDING_A_STEP["cuda"])
        batches: list[list[int]] = []
        prompts = 0  # tokens of the last batch's prompts
        for index in order:
            length, limit = len(requests[index].prompt_ids), limits[index]  # longest so far: sorted
            rows = len(batches[-1]) if batches else 0
            full = (rows + 1) * (length + limit) > MAX_BATCH_TOKENS
            padded = rows * length - prompts > worth * limit
            if not batches or full or padded or limits[batches[-1][0]] != limit:
                batches.append([])
                prompts = 0
            batches[-1].append(index)
            prompts += length
        return batches

    def _generate_batch(
        self,
        requests: Sequence[GenerateRequest],
        sampling: Sampling,
        grammar: Grammar | None,
        limit: int,
    ) -> list[Generation]:
        device = self.model.device
        ids, mask = pad_left([r.prompt_ids for r in requests], self.tokenizer.pad_id)
        draws = torch.from_numpy(
            np.stack([uniforms(r.seed, sampling.max_tokens) for r in requests])
        )
        length = ids.shape[1]
        sampler = SeededSampler(draws.to(device), sampling, length)
        masks = [] if grammar is None else [grammar.processor(len(requests), length)]
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=limit,
            eos_token_id=sorted(self.tokenizer.end_ids),
            pad_token_id=self.tokenizer.pad_id,
            # Where nothing is said, the checkpoint's own sampling defaults would hold.
            num_beams=1,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            min_new_tokens=0,
        )
        output = cast("Any", self.model).generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            generation_config=config,
            logits_processor=LogitsProcessorList([*masks, sampler]),
        )
        completions = output[:, length:].tolist()
        return [self._finish(*pair) for pair in zip(requests, completions, strict=True)]

    def _finish(self, request: GenerateRequest, ids: list[int]) -> Generation:
        ends = self.tokenizer.end_ids
        end = next((place for place, token in enumerate(ids) if token in ends), None)
        kept = ids if end is None else ids[: end + 1]
        text = self.tokenizer.decode(kept)
        found = Generation(tuple(kept), text, "length" if end is None else "stop")
        opened = opens_thinking(request.prompt_ids, self.tokenizer.text_of)
        return without_thinking(found, opened=opened)


def pad_left(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (ids, mask) of shape (rows, longest), padded on the left."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, width - len(row) :] = torch.tensor(list(row), dtype=torch.long)
        mask[index, width - len(row) :] = 1
    return ids, mask


@torch.inference_mode()
def last_logits(model: PreTrainedModel, rows: Sequence[Sequence[int]], pad_id: int) -> torch.Tensor:
    """Return the logits that follow each row, shape (rows, vocabulary), padded on the left."""
    ids, mask = pad_left(rows, pad_id)
    output = model(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0).to(model.device),
        logits_to_keep=1,
        use_cache=False,
    )
    logits: torch.Tensor = output.logits[:, -1]
    return logits


@torch.no_grad()
def sequence_logprobs(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    pad_id: int,
    temperature: float,
    batch_size: int = MAX_BATCH_ROWS,
) -> list[float]:
    """Return log p(completion | prompt), summed over its tokens, without the floor of `min_p`.

    Args:
        model: a causal language model.
        prompts: token ids of each prompt.
        completions: token ids of each completion, the end token included.
        pad_id: id that pads.
        temperature: that of the sampling, so that a mean of differences estimates a KL.
        batch_size: most rows of one forward pass; fewer where their logits would be too many.
    """
    result: list[float] = []
    longest = max((len(p) + len(c) for p, c in zip(prompts, completions, strict=True)), default=1)
    logits_a_row = longest * int(model.config.get_text_config().vocab_size)
    batch_size = max(1, min(batch_size, MAX_BATCH_LOGITS // logits_a_row))
    for start in range(0, len(prompts), batch_size):
        rows = [
            [*prompt, *completion]
            for prompt, completion in zip(
                prompts[start : start + batch_size],
                completions[start : start + batch_size],
                strict=True,
            )
        ]
        lengths = [len(c) for c in completions[start : start + batch_size]]
        ids, mask = pad_left(rows, pad_id)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        logits = model(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            position_ids=positions.to(model.device),
        ).logits
        logprobs = torch.log_softmax(logits[:, :-1].float() / temperature, dim=-1)
        chosen = logprobs.gather(2, ids[:, 1:, None].to(model.device)).squeeze(2)
        result += [
            float(row[-length:].sum()) if length else 0.0
            for row, length in zip(chosen, lengths, strict=True)
        ]
    return result
