"""The longest texts that each role reads and writes, in tokens, from the settings alone."""

from __future__ import annotations

from importlib import resources
from math import ceil
from typing import Final, NamedTuple

from dynamicrubric.config import Config, LanguageConfig, RecipeConfig
from dynamicrubric.evaluatorkinds import WITH_REWARD_MODEL
from dynamicrubric.worlds.postcards.prompts import all_prompts

LETTERS_PER_TOKEN: Final = 3.0
"""Letters of a token where letters are what the settings limit. English prose has four to five a
token; code, names and other languages fewer. Text of fewer than three is longer than said here."""
FRAME_TOKENS: Final = 64
"""Most tokens of a chat frame around one message (a Llama 3 system turn with dates has 40)."""
MAX_CRITERION_LETTERS: Final = 300
"""Of a valid criterion (`rubrics.parse_rubric`)."""
_JUDGES: Final = {
    "geval": "geval",
    "flask": "flask",
    "pairwise": "pairwise",
    "static_implicit": "implicit",
}
"""The text that a rated evaluator asks with; all others ask a verifier."""
_POSTCARD_LETTERS: Final = 160  # about forty words of them


class Lengths(NamedTuple):
    """Tokens, at most.

    Attributes:
        policy_in: what the policy reads.
        policy_out: what it writes.
        generator_in: what the generator reads: a prompt and, if it sees it, the response set.
        generator_out: what it writes.
        judged: a prompt and a response, as the verifier reads them before the criteria.
        asked: the questions of one rubric, as it reads them behind these.
        warm_policy: a text of the policy's warm start; 0 where there is none.
        warm_generator: a text of the generator's.
        rewarded: what a reward model reads of one response; 0 where there is none.
    """

    policy_in: int
    policy_out: int
    generator_in: int
    generator_out: int
    judged: int
    asked: int
    warm_policy: int
    warm_generator: int
    rewarded: int = 0


def longest_texts(config: Config, recipe: RecipeConfig) -> Lengths:
    """Return the longest texts of one arm."""
    world = config.world
    size, written = recipe.responses_per_set, recipe.policy.max_tokens
    if not isinstance(world, LanguageConfig):
        prompt = _tokens(max(len(one.text) for one in all_prompts()))
        card = _tokens(_POSTCARD_LETTERS)
        sees = size * (written + 2) if recipe.evaluator == "dynamic" else 0
        return Lengths(
            policy_in=prompt + 4,
            policy_out=written,
            generator_in=prompt + 4 + sees,
            generator_out=recipe.generator.max_tokens,
            judged=0,
            asked=0,
            warm_policy=prompt + 4 + card,
            warm_generator=prompt + 4 + size * (card + 2) + recipe.generator.max_tokens,
            rewarded=_rewarded(recipe, prompt + 4, max(written, card) + 2, world.num_anchors),
        )
    prompt = FRAME_TOKENS + _tokens(world.max_prompt_letters)
    asked = prompt + _tokens(_letters_of("generator"))
    shown = size * (_tokens(len("Response 9:\n\n\n")) + written)
    warm = size * _tokens(len("Response 9:\n\n\n") + world.max_shown_letters)
    criteria = min(
        recipe.generator.max_tokens, recipe.max_rubric_items * _tokens(MAX_CRITERION_LETTERS)
    )
    answer = max(written, _tokens(world.max_response_letters))
    judged = prompt + _tokens(_letters_of(_JUDGES.get(recipe.evaluator, "verifier"))) + answer
    if recipe.evaluator == "pairwise":  # it reads two
        judged += answer
    if recipe.evaluator == "static_implicit":  # it reads a whole rubric
        judged += criteria + recipe.max_rubric_items * _tokens(len("- (5) \n"))
    listed = _tokens(len("Response 9:\n\n\n")) + answer
    texts = _tokens(_letters_of("reward_set")) if recipe.evaluator == "scalar_set" else 0
    return Lengths(
        policy_in=prompt,
        policy_out=written,
        generator_in=asked + (shown if recipe.evaluator == "dynamic" else 0),
        generator_out=recipe.generator.max_tokens,
        judged=judged,
        asked=criteria + recipe.max_rubric_items * FRAME_TOKENS,
        warm_policy=0,
        warm_generator=asked + warm + FRAME_TOKENS * recipe.max_rubric_items,
        rewarded=_rewarded(recipe, prompt + texts, listed, world.num_anchors),
    )


def _rewarded(recipe: RecipeConfig, prompt: int, answer: int, num_anchors: int) -> int:
    """Return what a reward model reads at most: the response, and the set or the list it is of."""
    if recipe.evaluator not in WITH_REWARD_MODEL:
        return 0
    shown = max(recipe.responses_per_set, num_anchors) if recipe.evaluator == "scalar_set" else 0
    return prompt + (shown + 1) * answer


def _tokens(letters: int) -> int:
    return ceil(letters / LETTERS_PER_TOKEN)


def _letters_of(name: str) -> int:
    texts = resources.files("dynamicrubric.prompts") / "texts"
    return len((texts / f"{name}.txt").read_text(encoding="utf-8"))
