"""Settings of the world "language": where its prompts and anchors come from, and how many."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from dynamicrubric.settings import Listed, Section

Source = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Letters = Annotated[int, Field(ge=1, le=1_000_000)]


class LanguageConfig(Section):
    """Prompts with ranked answers, from files or the hub."""

    name: Literal["language"]
    seed: Annotated[int, Field(ge=0)]
    """Seed of the split, of the warm starts' rubrics and of new adapters."""
    anchors: Annotated[tuple[Source, ...], Listed, Field(min_length=1)]
    """Files or folders (JSON Lines or Parquet) in Nectar's format or that of docs/data.md, or
    `hub:owner/name[@revision]`."""
    against: Annotated[tuple[Source, ...], Listed]
    """Benchmark files that no prompt may overlap; an empty list checks none."""
    num_train_prompts: Count
    """Training prompts; with fewer in the sources, preparing them says how many there are."""
    num_heldout_prompts: Count
    """Held-out prompts; likewise."""
    heldout_share: Annotated[float, Field(gt=0.0, lt=1.0)]
    """Share of the prompts that are held out, by a hash of the prompt."""
    num_anchors: Annotated[int, Field(ge=2, le=64)]
    """Length n of an anchor list (the paper: 7): shorter lists are left out, of longer ones n are
    taken, evenly from best to worst."""
    min_prompt_letters: Letters
    max_prompt_letters: Letters
    min_response_letters: Letters
    """Of the best response."""
    max_response_letters: Letters
    """Of every response of a list; longer ones are left out of it."""
    max_shown_letters: Letters
    """Of a response in the generator's warm start: cut at a word, as the policy's responses are at
    its max_tokens, so that the generator reads sets of the size that it will meet."""
