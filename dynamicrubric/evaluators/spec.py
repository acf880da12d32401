"""What an evaluator is made of, as values: the same for a study's arm, a benchmark and a server."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from dynamicrubric.enginesettings import IN_PROCESS, GeneratorEngine, OpenAI
from dynamicrubric.evaluatorkinds import WITH_REWARD_MODEL
from dynamicrubric.recipe import RubricWeights, Sampling, VerifierConfig
from dynamicrubric.settings import Section

Kind = Literal[
    "dynamic",
    "static",
    "static_implicit",
    "scalar",
    "scalar_set",
    "geval",
    "flask",
    "pairwise",
    "length",
    "random",
    "programmatic",
    "oracle",
]
KINDS: Final[dict[Kind, str]] = {
    "dynamic": "a generator reads prompt and response set and writes a rubric for it",
    "static": "a rubric written once from the prompt alone; weighted sum of its verdicts",
    "static_implicit": "that rubric; one call of the judge rates a response 1 to 10 by all of it",
    "scalar": "a reward model reads prompt and response",
    "scalar_set": "a reward model reads prompt, response set and the response to score",
    "geval": "G-Eval: criteria and steps, a 1 to 5 rating weighted by its probabilities",
    "flask": "FLASK: the skills that the prompt needs, each rated 1 to 5",
    "pairwise": "a judge compares all pairs in both orders; the share of wins",
    "length": "the longer, the better",
    "random": "a number that says nothing",
    "programmatic": "a rubric that a person wrote, read by a program",
    "oracle": "the world's true quality",
}
"""Every kind, in one line."""
SEES_SET: Final = frozenset({"dynamic", "scalar_set", "pairwise"})
"""Kinds whose score of a response can depend on the others in its set."""
WITH_RUBRIC: Final = frozenset({"dynamic", "static", "static_implicit"})
"""Kinds whose rubric a generator writes."""
DEFAULT_SAMPLING: Final = Sampling(temperature=1.0, min_p=0.05, max_tokens=1024)
DEFAULT_VERIFIER: Final = VerifierConfig(
    error_rate=0.0, failure_rate=0.0, max_unscored_rate=1.0, kind="language_model"
)


class EvaluatorSpec(Section):
    """One evaluator; keys that its kind has no use for stay at their default."""

    kind: Kind
    name: Annotated[str, Field(max_length=64)] = ""
    """Its name in tables; empty: its kind."""
    generator: str | None = None
    """The generator's checkpoint folder; None: the base as it is (zero-shot), or an endpoint's."""
    generator_engine: GeneratorEngine = IN_PROCESS
    """What samples the generator."""
    sampling: Sampling = DEFAULT_SAMPLING
    """How rubrics are sampled."""
    constrained: bool = False
    """Whether they are kept to the form of a rubric, token by token; not by an endpoint."""
    min_items: Annotated[int, Field(ge=1, le=64)] = 1
    max_items: Annotated[int, Field(ge=1, le=64)] = 8
    weights: RubricWeights = "written"
    verifier: VerifierConfig = DEFAULT_VERIFIER
    """What gives verdicts; of the rated kinds the judge, its engine and its coverage floor."""
    rubric: str | None = None
    """Of `programmatic`: a rubric's JSON; None: the rules of the world."""
    reward_model: str | None = None
    """Of `scalar` and `scalar_set`: a folder, or a model's id on the hub."""
    num_skills: Annotated[int, Field(ge=1, le=12)] = 3
    """Of `flask`: skills that a prompt is judged by."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of what is drawn once a prompt and not once a set: a static rubric."""

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.name or self.kind

    @model_validator(mode="after")
    def _keys_suit_the_kind(self) -> Self:
        for key, kinds in (
            ("generator", WITH_RUBRIC),
            ("rubric", {"programmatic"}),
            ("reward_model", WITH_REWARD_MODEL),
        ):
            if getattr(self, key) is not None and self.kind not in kinds:
                raise ValueError(
                    f"{key} is {getattr(self, key)!r} with kind {self.kind!r}; it is of "
                    f"{', '.join(sorted(kinds))} alone"
                )
        if self.constrained and isinstance(self.generator_engine, OpenAI):
            raise ValueError(
                "constrained is true with generator_engine.kind 'openai', whose endpoints keep "
                "nothing to a grammar that can be relied on: it can only be false"
            )
        if self.constrained and self.kind not in WITH_RUBRIC:
            raise ValueError(
                f"constrained is true with kind {self.kind!r}; it is of "
                f"{', '.join(sorted(WITH_RUBRIC))} alone"
            )
        if self.min_items > self.max_items:
            raise ValueError(f"min_items {self.min_items} is above max_items {self.max_items}")
        return self
