"""Writes the world's data: prompts, anchors and the warm starts' texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dynamicrubric.config import WorldConfig
from dynamicrubric.rubrics import render_rubric
from dynamicrubric.seeds import generator_for
from dynamicrubric.worlds.postcards.anchors import AnchorList, make_anchors
from dynamicrubric.worlds.postcards.prompts import PostcardPrompt, split_prompts
from dynamicrubric.worlds.postcards.rubric_prior import prior_rubric
from dynamicrubric.worlds.postcards.texts import compose

POSTCARDS_PER_PROMPT: Final = 24
RUBRICS_PER_PROMPT: Final = 24
PROMPT_ONLY_SHARE: Final = 0.25
"""Share of the generator's warm start without responses, so that one G_0 serves both evaluators."""


@dataclass(frozen=True)
class RubricExample:
    """One text of the generator's warm start."""

    prompt: str
    responses: tuple[str, ...]
    rubric: str


def policy_examples(prompts: Iterable[PostcardPrompt], seed: int) -> list[tuple[str, str]]:
    """Return (prompt, postcard) pairs of mixed quality for the policy's warm start."""
    pairs = []
    for prompt in prompts:
        rng = generator_for(seed, "policy_examples", prompt.id)
        pairs += [(prompt.text, compose(prompt, rng)) for _ in range(POSTCARDS_PER_PROMPT)]
    return pairs


def rubric_examples(
    prompts: Iterable[PostcardPrompt], num_responses: int, num_items: tuple[int, int], seed: int
) -> list[RubricExample]:
    """Return rubrics of valid form and no direction for the generator's warm start."""
    examples = []
    for prompt in prompts:
        rng = generator_for(seed, "rubric_examples", prompt.id)
        for _ in range(RUBRICS_PER_PROMPT):
            alone = rng.random() < PROMPT_ONLY_SHARE
            responses = tuple(compose(prompt, rng) for _ in range(0 if alone else num_responses))
            rubric = prior_rubric(prompt, responses, num_items, rng)
            examples.append(RubricExample(prompt.text, responses, render_rubric(rubric)))
    return examples


def anchor_lists(prompts: Iterable[PostcardPrompt], world: WorldConfig) -> list[AnchorList]:
    """Return one ranked anchor list for each training prompt."""
    return [
        make_anchors(
            prompt,
            world.num_anchors,
            generator_for(world.seed, "anchors", prompt.id),
        )
        for prompt in prompts
    ]


def write_world(
    world: WorldConfig, num_responses: int, num_items: tuple[int, int], out_dir: Path
) -> None:
    """Write prompts.jsonl, anchors.jsonl, sft_policy.jsonl, sft_generator.jsonl and card.md.

    Args:
        world: the world's settings.
        num_responses: K, responses in each set of the generator's warm start.
        num_items: fewest and most items of a warm-start rubric.
        out_dir: existing, empty folder.
    """
    training, heldout = split_prompts(world.num_heldout_prompts, world.seed)
    prompts = [
        {"id": p.id, "text": p.text, "split": split}
        for split, group in (("train", training), ("heldout", heldout))
        for p in group
    ]
    anchors = anchor_lists(training, world)
    _write_jsonl(out_dir / "prompts.jsonl", prompts)
    _write_jsonl(
        out_dir / "anchors.jsonl",
        ({"prompt_id": a.prompt_id, "responses": list(a.responses)} for a in anchors),
    )
    _write_jsonl(
        out_dir / "sft_policy.jsonl",
        ({"prompt": p, "response": r} for p, r in policy_examples(training, world.seed)),
    )
    _write_jsonl(
        out_dir / "sft_generator.jsonl",
        (
            {"prompt": e.prompt, "responses": list(e.responses), "rubric": e.rubric}
            for e in rubric_examples(training, num_responses, num_items, world.seed)
        ),
    )
    (out_dir / "card.md").write_text(
        f"""# The world "postcards", seed {world.seed}

- {len(training)} training prompts, {len(heldout)} held-out prompts (combinations never trained on)
- {len(anchors)} anchor lists of {world.num_anchors} postcards, best first by true quality;
  0 adjacent pairs swapped (rate 0.0)
- {len(training) * POSTCARDS_PER_PROMPT} postcards of mixed quality for the policy's warm start
- {len(training) * RUBRICS_PER_PROMPT} rubrics without direction for the generator's warm start,
  about {PROMPT_ONLY_SHARE:.0%} of them written from the prompt alone

Made by the program in dynamicrubric/worlds/postcards; Apache-2.0 like the rest of the project.
""",
        encoding="utf-8",
    )


def _write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
