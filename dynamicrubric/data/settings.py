"""How a data set is prepared: filters, contamination, splits. The defaults are the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from dynamicrubric.errors import UserError
from dynamicrubric.problems import all_problems
from dynamicrubric.settings import Rate, Section
from dynamicrubric.yamlio import load_yaml

Chars = Annotated[int, Field(ge=0, le=10_000_000)]


class FilterSettings(Section):
    """Which anchor rows are kept.

    "Paper" marks what it states; the rest is ours, for what it names without a number.
    """

    min_responses: Annotated[int, Field(ge=2, le=1000)] = 7
    """Paper: at least 7 candidates."""
    min_prompt_chars: Chars = 50
    """Paper: mostly over 50 characters; here a shorter one is always left out."""
    min_best_chars: Chars = 50
    """Paper: the same of the best response; of every one of a tied best tier."""
    max_prompt_chars: Chars = 24_000
    """Three characters a token, at least: the paper's 8K tokens of prompt."""
    max_response_chars: Chars = 24_000
    """The paper's 8K tokens of response."""
    max_repeated_share: Rate = 0.3
    """Paper: no repetition loops. Share of a text's 8-word runs that it had before; 1 allows all.

    Applies to the prompt and the best tier, like the other filters of text: that a worse response
    loops is a reason why it is worse.
    """
    min_latin_share: Rate = 0.0
    """Share of Latin letters among the letters of prompt and best tier; 0 keeps every script."""


class ContaminationSettings(Section):
    """When a training row overlaps a benchmark row."""

    prompt_ngram: Annotated[int, Field(ge=3, le=50)] = 8
    """Words of a run that two prompts share. Tulu 3 (Lambert et al. 2024, section 3.2) uses 8;
    GPT-3 (Brown et al. 2020, appendix C) 8 to 13, by the benchmark's typical length."""
    response_ngram: Annotated[int, Field(ge=3, le=50)] = 13
    """The same for responses, which are longer and full of phrases that everybody uses."""
    min_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Share of the benchmark text's words that lie in such runs (Tulu 3: half)."""
    max_prompts_of_phrase: Annotated[int, Field(ge=1, le=1000)] = 4
    """A run that is in the texts of more different benchmark prompts is a phrase, and not counted:
    "explain your reasoning step by step", the words of a refusal."""
    min_share_of_training: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    """The other way round: so much of a training prompt lies within a benchmark's longer one, which
    puts a system prompt or an article around it."""
    min_sentence_words: Annotated[int, Field(ge=1, le=50)] = 4
    """Benchmark prompts shorter than a run are looked for as whole sentences of so many words."""
    responses: bool = True
    """Compare the responses as well."""


class SplitSettings(Section):
    """Which prompts are held out."""

    heldout_share: Rate = 0.05
    seed: Annotated[int, Field(ge=0)] = 0
    """Another number holds out other prompts; a row's split depends on nothing else."""


class DataSettings(Section):
    """Everything that decides what a prepared set contains."""

    filters: FilterSettings = FilterSettings()
    contamination: ContaminationSettings = ContaminationSettings()
    splits: SplitSettings = SplitSettings()
    max_bad_rate: Rate = 0.02
    """Share of a source's rows that may be unreadable; above it something else is wrong."""
    license: str = "not stated"
    """Of rows that do not name theirs."""


def load_settings(path: Path | None) -> DataSettings:
    """Read a YAML file of settings; without one, the defaults.

    Raises:
        UserError: names the key, the value and what is allowed.
    """
    if path is None:
        return DataSettings()
    document = load_yaml(path)
    try:
        return DataSettings.model_validate(document)
    except ValidationError as error:
        got, expected = all_problems(error, DataSettings)
        raise UserError(
            doing=f"reading {path}", got=got, expected=expected, remedy="change what is named"
        ) from None
