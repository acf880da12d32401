"""Memory of each step: what its models, its training and its largest batch take, in bytes.

A step holds its models (and gradients and Adam's moments while it trains) from beginning to end;
on top come, in turn, sampling, verdicts, measuring, and the forward and backward pass. What a pass
keeps for the backward pass is measured (`engines.meta`); batch bounds are the engines' own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dynamicrubric.config import Config, PretrainedConfig, RecipeConfig
from dynamicrubric.engines.meta import ModelSize
from dynamicrubric.engines.packing import room_behind
from dynamicrubric.engines.reward import MAX_BATCH_TOKENS as REWARD_TOKENS
from dynamicrubric.engines.transformers import MAX_BATCH_LOGITS, MAX_BATCH_ROWS, MAX_BATCH_TOKENS
from dynamicrubric.engines.verifier import GPU_BUDGET
from dynamicrubric.engines.vllm_child import GPU_BATCH_ROWS, GPU_BATCH_TOKENS
from dynamicrubric.enginesettings import Vllm, VllmVerifier
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS, RATED, SCORED, WITH_REWARD_MODEL
from dynamicrubric.preflight.facts import DTYPE_BYTES, GIB, Phase
from dynamicrubric.preflight.lengths import Lengths
from dynamicrubric.preflight.work import TRAIN_REWARD, num_prompts

FLOAT32: Final = 4
VLLM_LOGIT_BYTES: Final = 3 * 4
"""A logit in vLLM's sampler on top of the model's own: float32, its softmax and its log-softmax."""
PROBE_TOKENS: Final = 257
"""Longest prompt that a probe of vLLM's weights is compared on."""
ADAM_BYTES: Final = 8
"""Adam keeps two float32 numbers a parameter (Kingma and Ba, arXiv 1412.6980, algorithm 1)."""
SAMPLER_BYTES: Final = 4 + 3 * 8
"""A logit in `engines.transformers.SeededSampler`: float32, and three tensors of float64."""
MASK_BYTES: Final = 1
"""Of a pair of positions in the mask of padded rows, as transformers makes it; PyTorch's attention
turns it into the model's number format on top."""
LOGPROB_BYTES: Final = 3 * 4
"""A logit in `engines.transformers.sequence_logprobs`, on top of the model's own: float32, divided
by the temperature, and its log-softmax."""
RATING_BYTES: Final = 2 * 8
"""A logit of a rating on top of the model's own: float64, and less its logarithm of the sum."""
QUESTION_TOKENS: Final = 256
"""More than a criterion and the frame around it take."""
HEAD_TILE: Final = 4096 * 32768 * 4
"""TRL computes log-probabilities in tiles of so many tokens x vocabulary entries, in float32
(TRL 1.16: `TOKEN_CHUNK_SIZE` in `trl.kernels.chunked_logprob`, `_CHUNKED_LOGPROB_CHUNK_SIZE` in
`trl.trainer.utils`)."""


@dataclass(frozen=True)
class Memory:
    """Computes the phases of one arm.

    Attributes:
        size: the backbone.
        config: all settings.
        recipe: the arm's.
        lengths: its longest texts.
    """

    size: ModelSize
    config: Config
    recipe: RecipeConfig
    lengths: Lengths

    def phases(self) -> list[Phase]:
        """Return the memory of each step that the arm has."""
        found = [self._warm_start("policy"), self._warm_start("generator"), self._sampling()]
        if self.recipe.generator.update != "none":
            found.append(self._train_generator())
        elif self._keeps:
            found.append(self._write_rubrics())
        found.append(self._train_reward())
        found += [self._train_policy(), self._evaluate()]
        return [phase for phase in found if phase is not None]

    @property
    def _base(self) -> float:
        """Weights that all roles share; none where each role is a model of its own."""
        return self.size.num_params * self.size.dtype_bytes if self._adapters else 0.0

    @property
    def _adapters(self) -> bool:
        return isinstance(self.config.backbone, PretrainedConfig)

    @property
    def _trained(self) -> int:
        """Parameters of one role that training moves."""
        return self.size.num_adapter_params if self._adapters else self.size.num_params

    @property
    def _role(self) -> float:
        """Weights of one role beside the base: adapters, and small models, are float32."""
        return self._trained * FLOAT32

    @property
    def _training(self) -> float:
        return self._trained * (FLOAT32 + ADAM_BYTES)

    @property
    def _writes(self) -> bool:
        """Whether a policy training loads a generator: kept rubrics and rules need none."""
        return self.recipe.evaluator == "dynamic"

    @property
    def _keeps(self) -> bool:
        """Whether rubrics are written once and kept: in round 1, and in round 0 to measure P_0."""
        return self.recipe.evaluator in KEEPS_RUBRICS

    @property
    def _judge(self) -> tuple[str, ...]:
        """The verifier, where a policy's responses are judged or rated by one."""
        evaluator = self.recipe.evaluator
        asks_none = evaluator == "oracle" or evaluator in SCORED - RATED
        return () if asks_none else ("verifier",)

    @property
    def _reward_model(self) -> float:
        """A reward model that scores, which takes the generator's place and shares no base.

        Somebody's checkpoint is loaded in float32, and counts as if it had the backbone's size.
        """
        model = self.recipe.reward_model
        if self.recipe.evaluator not in WITH_REWARD_MODEL or model is None:
            return 0.0
        if model.checkpoint:
            return self.size.num_params * FLOAT32
        return self._base + self._role

    def _train_reward(self) -> Phase | None:
        """Return the training of a reward model: a pair's two texts are rows of one pass."""
        model = self.recipe.reward_model
        trained = self.recipe.evaluator in WITH_REWARD_MODEL and model and not model.checkpoint
        if model is None or not trained:
            return None
        passed = self._pass(2 * model.batch_size, self.lengths.rewarded, 0)
        moments = {"forward and backward": passed}
        return Phase(TRAIN_REWARD, self._base, 0.0, self._role, self._training, moments)

    def _warm_start(self, role: str) -> Phase | None:
        settings = getattr(self.config.warm_start, role)
        if not settings.steps:
            return None
        length = getattr(self.lengths, f"warm_{role}")
        own = {"policy": 0.0, "generator": 0.0} | {role: self._role}
        moments = {"forward and backward": self._pass(settings.batch_size, length, length)}
        return Phase(
            f"warm_start {role}",
            self._base,
            own["policy"],
            own["generator"],
            self._training,
            moments,
        )

    def _sampling(self) -> Phase:
        moments = self._write("policy", num_prompts(self.config)[0] * self._set_size)
        served = self._served("policy")
        return Phase("sample_responses", self._base, self._role, 0.0, 0.0, moments, served=served)

    def _train_generator(self) -> Phase:
        generator = self.recipe.generator
        copies = 2 if generator.kl_beta else 1
        requests = generator.batch_size // self.config.runtime.processes
        writer: tuple[str, ...] = ()
        if self._keeps:  # then the trained one is loaded once more, and writes for every prompt
            copies += 1
            writer = ("generator",)
            if not self._in_vllm("generator"):
                requests = max(requests, sum(num_prompts(self.config)))
        moments = {
            **self._sample("generator", requests),
            **self._verdicts(generator.group_size),
            "forward and backward": self._update(
                generator.batch_size, self.lengths.generator_in, self.lengths.generator_out
            ),
        }
        return Phase(
            "train_generator",
            self._base,
            0.0,
            copies * self._role,
            self._training,
            moments,
            served=self._served("verifier", *writer),
        )

    def _write_rubrics(self) -> Phase:
        """Return round 1 of an untrained generator whose rubrics are kept."""
        moments = self._write("generator", sum(num_prompts(self.config)))
        served = self._served("generator")
        return Phase("train_generator", self._base, 0.0, self._role, 0.0, moments, served=served)

    def _train_policy(self) -> Phase:
        policy = self.recipe.policy
        copies = 2 if policy.kl_beta else 1
        processes = self.config.runtime.processes
        moments = {
            **self._sample("policy", policy.batch_size // processes),
            **(
                self._write("generator", policy.prompts_per_step // processes)
                if self._writes
                else {}
            ),
            **self._scores(),
            "forward and backward": self._update(
                policy.batch_size, self.lengths.policy_in, self.lengths.policy_out
            ),
        }
        generator = self._role if self._writes else self._reward_model
        return Phase(
            "train_policy",
            self._base,
            copies * self._role,
            generator,
            self._training,
            moments,
            served=self._served(*self._judge, *(("generator",) if self._writes else ())),
        )

    def _evaluate(self) -> Phase:
        heldout = num_prompts(self.config)[1]
        sets = heldout * self.config.evaluation.sets_per_prompt
        loads = self._writes or self._keeps
        moments = {
            **self._write("policy", sets * self._set_size),
            **(self._write("generator", sets if self._writes else heldout) if loads else {}),
            **self._scores(),
            "log-probabilities": self._logprobs(),
        }
        generator = self._role if loads else self._reward_model
        served = self._served("policy", *self._judge, *(("generator",) if loads else ()))
        return Phase(
            "evaluate_round", self._base, 2 * self._role, generator, 0.0, moments, served=served
        )

    @property
    def _set_size(self) -> int:
        return self.recipe.responses_per_set

    def _in_vllm(self, role: str) -> bool:
        return isinstance(getattr(self.recipe, role).engine, Vllm | VllmVerifier)

    def _served(self, *roles: str) -> float:
        """Return what vLLM's children of a step hold; roles in one format share one.

        Weights, room for an adapter, the cache that `runtime` gives it, and a layer's activations
        and the sampler's logits of as many tokens and sequences as run at once, in its own format.
        """
        engines = [getattr(self.recipe, role).engine for role in roles if self._in_vllm(role)]
        judges = self.recipe.verifier.kind == "language_model"
        if not judges:
            engines = [engine for engine in engines if not isinstance(engine, VllmVerifier)]
        formats = {(engine.dtype, engine.max_model_len) for engine in engines}
        size = self.size
        return sum(
            (size.num_params + size.num_adapter_params) * DTYPE_BYTES[dtype]
            + self.config.runtime.vllm.kv_cache_gib * GIB
            + GPU_BATCH_TOKENS * size.layer_bytes * DTYPE_BYTES[dtype] / size.dtype_bytes
            + GPU_BATCH_ROWS * size.vocab_size * (DTYPE_BYTES[dtype] + VLLM_LOGIT_BYTES)
            for dtype, _ in formats
        )

    def _write(self, role: str, requests: int) -> dict[str, float]:
        """Return a batch of a role that is not in training; vLLM's is in its child's account."""
        if self._in_vllm(role):
            return {f"probe, {role}": PROBE_TOKENS * self.size.layer_bytes}
        return self._sample(role, requests)

    def _sample(self, role: str, requests: int) -> dict[str, float]:
        """Return a batch's keys and values, and its prompts' pass or its sampler on top."""
        read, written = (getattr(self.lengths, f"{role}_{end}") for end in ("in", "out"))
        rows = max(1, min(requests, MAX_BATCH_TOKENS // (read + written)))
        cache = rows * (read + written) * self.size.cache_bytes
        prompts = rows * read * self.size.layer_bytes + self._mask(rows, read)
        sampler = rows * self.size.vocab_size * SAMPLER_BYTES
        return {f"sampling, {role}": cache + max(prompts, sampler)}

    def _scores(self) -> dict[str, float]:
        """Return what scores a policy's responses: verdicts, ratings or rewards, or nothing."""
        evaluator, size = self.recipe.evaluator, self.size
        if evaluator in WITH_REWARD_MODEL:
            length = max(1, self.lengths.rewarded)
            rows = max(1, REWARD_TOKENS // length)
            return {"rewards": rows * length * size.layer_bytes + self._mask(rows, length)}
        if not self._judge:
            return {}
        if evaluator not in RATED:
            return self._verdicts(1)
        if self._in_vllm("verifier"):
            return {}
        length = max(1, self.lengths.judged)
        rows = max(1, GPU_BUDGET.tokens // length)
        logits = rows * size.vocab_size * (size.dtype_bytes + RATING_BYTES)
        return {"ratings": rows * length * size.layer_bytes + self._mask(rows, length) + logits}

    def _verdicts(self, num_rubrics: int) -> dict[str, float]:
        """Return a packed pass: its row's activations, and the largest block's scores in float32.

        A block (`engines.packed`) is one response with the questions of all rubrics about it, or as
        many of them as there is room for behind it.
        """
        if self.recipe.verifier.kind != "language_model" or self._in_vllm("verifier"):
            return {}
        budget, judged = GPU_BUDGET.tokens, self.lengths.judged
        prefixes = {judged, min(judged, budget // 2)}  # the most pairs, if shorter ones are judged
        room = {prefix: max(room_behind(prefix, budget), QUESTION_TOKENS) for prefix in prefixes}
        asked = num_rubrics * self.lengths.asked
        pairs = max(prefix * min(asked, room[prefix]) for prefix in prefixes)
        tokens = max(budget, judged + room[judged])
        scores = self.size.num_heads * pairs * FLOAT32
        return {"verdicts": tokens * self.size.layer_bytes + scores}

    def _logprobs(self) -> float:
        length = self.lengths.policy_in + self.lengths.policy_out
        vocabulary = self.size.vocab_size
        rows = max(1, min(MAX_BATCH_ROWS, MAX_BATCH_LOGITS // (length * vocabulary)))
        logits = rows * length * vocabulary * (self.size.dtype_bytes + LOGPROB_BYTES)
        return logits + rows * length * self.size.layer_bytes + self._mask(rows, length)

    def _update(self, batch: int, read: int, written: int) -> float:
        own = batch // self.config.runtime.processes
        return self._pass(
            min(self.config.runtime.rows_per_pass or own, own), read + written, written
        )

    def _pass(self, rows: int, length: int, scored: int) -> float:
        """Return what one forward and backward pass takes.

        Recomputing keeps each layer's input (Chen et al., arXiv 1604.06174); a layer in its
        backward pass has its activations and, at most as large, their gradients.
        """
        size = self.size
        whole = size.layer_bytes
        kept = size.num_layers * (
            size.hidden_size * size.dtype_bytes
            if self.config.runtime.recompute_activations
            else whole
        )
        extra = 2 * whole if self.config.runtime.recompute_activations else whole
        activations = rows * length * (kept + extra + size.outer_bytes)
        head = rows * scored * size.hidden_size * (size.dtype_bytes + FLOAT32)
        tile = min(HEAD_TILE, rows * scored * size.vocab_size * FLOAT32)
        return activations + head + 2 * tile + self._mask(rows, length)

    def _mask(self, rows: int, length: int) -> float:
        return rows * length**2 * (MASK_BYTES + self.size.dtype_bytes)


def largest_phases(of_arms: list[list[Phase]]) -> tuple[Phase, ...]:
    """Return each step's phase in the arm where it needs most."""
    found: dict[str, Phase] = {}
    for phases in of_arms:
        for phase in phases:
            if phase.step not in found or found[phase.step].total < phase.total:
                found[phase.step] = phase
    return tuple(found.values())
