"""What serves each role in each arm: whether it could be opened, and whether texts fit in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dynamicrubric.config import RecipeConfig, RuntimeConfig
from dynamicrubric.engines.packing import room_behind
from dynamicrubric.engines.ready import check_ready
from dynamicrubric.engines.verifier import GPU_BUDGET
from dynamicrubric.enginesettings import Vllm
from dynamicrubric.errors import UserError
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS, RATED, SCORED
from dynamicrubric.hub.names import parse_hub_name
from dynamicrubric.plan import Plan
from dynamicrubric.preflight.facts import DTYPE_BYTES, GIB, Check, of_arms
from dynamicrubric.preflight.lengths import Lengths

if TYPE_CHECKING:
    from dynamicrubric.engines.meta import ModelSize

ROLES: Final = ("policy", "generator", "verifier")


class Arm(NamedTuple):
    """An arm that is run.

    Attributes:
        recipe: its recipe.
        lengths: its longest texts.
    """

    recipe: RecipeConfig
    lengths: Lengths

    def has(self, role: str) -> bool:
        """Say whether the arm asks a model in this role."""
        evaluator = self.recipe.evaluator
        if role == "generator":
            return evaluator == "dynamic" or evaluator in KEEPS_RUBRICS
        asks_none = evaluator == "oracle" or evaluator in SCORED - RATED
        judges = self.recipe.verifier.kind == "language_model" and not asks_none
        return role == "policy" or judges


Arms = Mapping[str, Arm]


def ready_checks(plan: Plan, runtime: RuntimeConfig) -> Iterator[Check]:
    """Yield what the run itself would refuse at once: an interpreter, a key or a package."""
    found: dict[Check, None] = {}
    for cell in (*plan.starts.values(), *plan.cells.values()):
        try:
            check_ready([cell.recipe], runtime)
        except UserError as error:
            found[Check.refused("engines", error)] = None
    yield from found


def served_checks(arms: Arms) -> list[Check]:
    """Name what runs outside a task's own process, and is in no figure here."""
    return of_arms({name: list(_served(arm)) for name, arm in arms.items()})


def _served(arm: Arm) -> Iterator[Check]:
    for role in ROLES:
        kind = getattr(arm.recipe, role).engine.kind
        if not arm.has(role) or kind == "transformers":
            continue
        if kind == "vllm":
            yield Check("engines", "ok", f"{role}: vLLM, a child process beside the task")
        else:
            yield Check("engines", "note", f"{role}: {kind}, elsewhere; counted as if it were here")


class _Fit(NamedTuple):
    """The longest text of a role in an arm, and what it has to fit in."""

    arm: str
    tokens: int
    limit: int
    holder: str
    change: str


def context_checks(arms: Arms, context: int | None) -> Iterator[Check]:
    """Compare each role's longest text with its model's context and its engine's limit.

    Args:
        arms: the arms that are run.
        context: tokens that the backbone was made for; None if it does not say.
    """
    for role in ROLES:
        fits = [
            fit
            for name, arm in arms.items()
            if arm.has(role) and (fit := _fit(name, arm, role, context))
        ]
        if not fits:
            continue
        worst = min(fits, key=lambda fit: fit.limit - fit.tokens)
        differ = len({(fit.tokens, fit.limit) for fit in fits}) > 1
        where = f" (in {worst.arm})" if differ else ""
        found = f"{role}: at most {worst.tokens:,} tokens, {worst.holder} {worst.limit:,}{where}"
        if worst.tokens <= worst.limit:
            yield Check("context", "ok", found)
        else:
            yield Check("context", "problem", found, worst.change)


def _fit(name: str, arm: Arm, role: str, context: int | None) -> _Fit | None:
    """Return the tightest limit of a role; None where nobody here knows one."""
    engine = getattr(arm.recipe, role).engine
    if engine.kind == "openai":
        return None
    tokens, change = _longest(arm, role)
    change = f"lower {change}"
    own = _Fit(name, tokens, context, "the model was made for", change) if context else None
    if isinstance(engine, Vllm) and (context is None or engine.max_model_len < context):
        holder = f"{role}.engine.max_model_len is"
        raised = f"raise {role}.engine.max_model_len, or {change}"
        return _Fit(name, tokens, engine.max_model_len, holder, raised)
    return own


def _longest(arm: Arm, role: str) -> tuple[int, str]:
    """Return a role's longest text in tokens, and the settings that shorten it."""
    lengths = arm.lengths
    if role == "policy":
        settings = "world.max_prompt_letters or recipe.policy.max_tokens"
        return lengths.policy_in + lengths.policy_out, settings
    if role == "generator":
        return (
            lengths.generator_in + lengths.generator_out,
            "recipe.policy.max_tokens, which its prompt holds responses_per_set times, or "
            "recipe.generator.max_tokens",
        )
    # A verdict of one token is read off the prompt; a model that thinks first needs the room.
    reply = getattr(arm.recipe.verifier.engine, "max_verdict_tokens", 1)
    thinking = reply if reply > 1 else 0
    return lengths.judged + thinking, "world.max_response_letters or world.max_prompt_letters"


def cache_checks(arms: Arms, runtime: RuntimeConfig, size: ModelSize) -> Iterator[Check]:
    """Compare vLLM's cache with one text as long as it may be, without room for which it ends.

    Args:
        arms: the arms that are run.
        runtime: how large the cache is.
        size: the backbone, whose keys and values are of vLLM's format there.
    """
    engines = [
        getattr(arm.recipe, role).engine for arm in arms.values() for role in ROLES if arm.has(role)
    ]
    needs = {
        (
            one.max_model_len * size.cache_bytes * DTYPE_BYTES[one.dtype] / size.dtype_bytes / GIB,
            one.max_model_len,
        )
        for one in engines
        if isinstance(one, Vllm)
    }
    if not needs:
        return
    (need, longest), have = max(needs), runtime.vllm.kv_cache_gib
    found = (
        f"vLLM's cache: {need:.2f} GiB for one text of {longest:,} tokens (engine.max_model_len), "
        f"{have:.2f} GiB to be had (runtime.vllm.kv_cache_gib)"
    )
    fits = need <= have
    change = f"raise runtime.vllm.kv_cache_gib to {ceil(need)} or more, or lower max_model_len"
    yield Check("context", "ok" if fits else "problem", found, "" if fits else change)


def reward_checks(arms: Arms, context: int | None) -> Iterator[Check]:
    """Compare what a reward model reads with its context: a pair that is longer ends its training.

    Args:
        arms: the arms that are run.
        context: tokens that the backbone was made for; None if it does not say.
    """
    models = [(arm.lengths.rewarded, arm.recipe.reward_model) for arm in arms.values()]
    longest = max((read for read, model in models if model and not model.checkpoint), default=0)
    if longest and context:
        found = f"reward model: at most {longest:,} tokens, the model was made for {context:,}"
        change = "lower world.max_response_letters, world.max_prompt_letters or world.num_anchors"
        fits = longest <= context
        yield Check("context", "ok" if fits else "problem", found, "" if fits else change)
    for name in sorted({model.checkpoint for _, model in models if model and model.checkpoint}):
        if Path(name).is_dir():
            continue
        try:
            parse_hub_name(name)
        except UserError as error:
            yield Check.refused("sources", error)
            continue
        found = f"the reward model {name}: it is fetched from the hub when it is first needed"
        yield Check("sources", "note", found, "have the hub within reach, or name a folder")


def judging_checks(arms: Arms) -> Iterator[Check]:
    """Say where packed verdicts do not save the reading."""
    judged = [
        arm.lengths.judged
        for arm in arms.values()
        if arm.has("verifier") and arm.recipe.verifier.engine.kind == "transformers"
    ]
    if max(judged, default=0) > GPU_BUDGET.tokens:
        yield Check(
            "verdicts",
            "note",
            f"a prompt and response of up to {max(judged):,} tokens: one beyond "
            f"{GPU_BUDGET.tokens:,} is read again for every "
            f"{room_behind(max(judged), GPU_BUDGET.tokens):,} tokens of criteria",
        )
