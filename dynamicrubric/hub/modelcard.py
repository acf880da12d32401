"""The card of a policy or a generator, every figure and setting of it from the run's records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.hub.cardparts import provenance_list, settings_block
from dynamicrubric.hub.cardtables import figures_text
from dynamicrubric.hub.figures import Figures
from dynamicrubric.hub.origin import Origin
from dynamicrubric.hub.trained import Trained
from dynamicrubric.metrics import ALL_ROUND_METRICS
from dynamicrubric.report.phrases import count, listed
from dynamicrubric.worlds.base import POSTCARDS

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

TEMPLATE: Final = Path(__file__).parent / "templates" / "model.md"
PAPER: Final = "Co-Evolving LLM Evaluators and Policies via DynamicRubric (arXiv 2607.20083)"
_REWARDS: Final[Mapping[str, str]] = {
    "dynamic": "its score under the rubric that the generator wrote for its response set",
    "static": "its score under the rubric that the generator wrote once for its prompt",
    "rule_based": "its score under one rubric that a person wrote for every prompt",
    "oracle": "its true quality; there was no rubric",
    "static_implicit": "a language model's rating of it by a rubric written once for its prompt",
    "scalar": "the sigmoid of a reward model's reward",
    "scalar_set": "the sigmoid of the reward of a reward model that read its response set",
    "geval": "a language model's rating of it (G-Eval)",
    "flask": "a language model's ratings of it by the skills that its prompt takes (FLASK)",
    "pairwise": "the share of comparisons with its response set that it won before a judge",
    "length": "its length",
    "random": "a number drawn at random",
}
_ROLES: Final[Mapping[str, str]] = {
    "policy": "A policy: it writes responses to prompts.",
    "generator": "A rubric generator: it reads a prompt and a set of responses and writes a "
    "rubric, a JSON list of yes/no criteria with weights from 1 to 5, under which the responses "
    "are scored.",
}
_READS_PROMPTS: Final = (
    "A rubric generator: it reads a prompt alone and writes a rubric, a JSON list of yes/no "
    "criteria with weights from 1 to 5, under which responses are scored."
)


@dataclass(frozen=True)
class ModelFacts:
    """All that a card says.

    Attributes:
        trained: the checkpoint.
        origin: what it was made from.
        figures: what was measured of it.
        repository: where it goes.
        license: its licence as a hub id; None if nobody stated one.
    """

    trained: Trained
    origin: Origin
    figures: Figures
    repository: str
    license: str | None


def model_card(facts: ModelFacts) -> ModelCard:
    """Return the card."""
    from huggingface_hub import ModelCard

    record = facts.trained.record
    card: ModelCard = ModelCard.from_template(
        _metadata(facts),
        template_path=str(TEMPLATE),
        title=facts.repository.partition("/")[2],
        summary=_summary(facts),
        method=_method(facts),
        base=_base(facts.origin),
        data=facts.origin.data or "Not known here: the prepared data are not in this project.",
        figures=figures_text(facts.figures),
        step=record.step,
        settings=settings_block(record.identity),
        limits=_limits(facts),
        licence=_licence(facts),
        use=_use(facts),
        provenance=provenance_list(record),
    )
    return card


def _metadata(facts: ModelFacts) -> ModelCardData:
    from huggingface_hub import ModelCardData

    origin = facts.origin
    tags = ["dynamicrubric", facts.trained.role, *([origin.world] if origin.world else [])]
    results = _results(facts)
    return ModelCardData(
        base_model=origin.base.repository if origin.base else None,
        datasets=list(origin.datasets) or None,
        eval_results=results or None,
        model_name=facts.repository.partition("/")[2] if results else None,
        library_name="peft" if origin.base else "transformers",
        license=facts.license,
        pipeline_tag="text-generation",
        tags=tags,
    )


def _results(facts: ModelFacts) -> list[EvalResult]:
    """Return the figures of this checkpoint in the hub's own form."""
    from huggingface_hub import EvalResult

    world = facts.origin.world or "unknown"
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=world,
            dataset_name=f"{world}, held-out prompts",
            dataset_split="heldout",
            metric_type=name,
            metric_name=ALL_ROUND_METRICS[name].meaning,
            metric_value=found.value,
        )
        for name, found in facts.figures.own.items()
    ]


def _summary(facts: ModelFacts) -> str:
    trained = facts.trained
    place = trained.place
    alone = trained.role == "generator" and _evaluator(trained) == "static"
    lines = [_READS_PROMPTS if alone else _ROLES[trained.role]]
    if place is not None:
        recipe = place.cell.recipe
        arms = f"arm{'s' if len(facts.figures.arms) > 1 else ''} {listed(facts.figures.arms)}"
        lines.append(
            f"Round {recipe.round}, seed {recipe.seed}, of the {arms}: the cell `{place.cell.key}` "
            "of a study in which policies and rubric generators are trained against each other."
        )
    return "\n\n".join(lines)


def _method(facts: ModelFacts) -> str:
    trained, step = facts.trained, facts.trained.record.step
    if step == "warm_start":
        how = "Supervised fine-tuning alone (TRL), the start of every arm: no round has trained it."
    elif step == "keep_generator":
        how = "Not trained in this round: it is the generator that the round began with."
    elif trained.role == "policy":
        reward = _REWARDS.get(_evaluator(trained), "a score")
        how = f"GRPO (TRL). The reward of a response is {reward}.{_rounds(trained)}"
    else:
        how = _generator_method(trained.record.identity)
    return f"{how}\n\nAfter {PAPER}; code: DynamicRubric, which implements it."


def _rounds(trained: Trained) -> str:
    number = trained.record.identity.get("round")
    if not isinstance(number, int):
        return ""
    before = f", after {count(number - 1, 'round')} like it" if number > 1 else ""
    return f" This is round {number}{before} and a warm start by supervised fine-tuning."


def _generator_method(identity: Mapping[str, Any]) -> str:
    training = identity.get("training")
    if not isinstance(training, Mapping):
        return "Not trained: the start generator wrote its rubrics once, and they were kept."
    objective = training.get("objective", {})
    return (
        "GRPO (TRL). A rubric is rewarded for telling the responses of its set apart (R_disc, "
        f"weight {objective.get('disc')}) and for ranking a known anchor list the right way "
        f"(R_anchor, weight {objective.get('anchor')})."
    )


def _evaluator(trained: Trained) -> str:
    rubrics: Any = trained.record.identity.get("rubrics")
    if isinstance(rubrics, Mapping):
        return str(rubrics.get("evaluator"))
    return trained.place.cell.recipe.rubrics.evaluator if trained.place else ""


def _base(origin: Origin) -> str:
    base = origin.base
    if base is None:
        return "None: all weights are here, trained from random ones by this project."
    hashes = [f"- `{name}`: SHA-256 `{digest}`" for name, digest in sorted(base.weights.items())]
    over = ["", "The weights that the adapter was trained over:", "", *hashes] if hashes else []
    return "\n".join([f"An adapter (LoRA, PEFT) over {base.words}.", *over])


def _limits(facts: ModelFacts) -> str:
    trained = facts.trained
    said = ["Figures are of held-out prompts of the same source, under this project's verifier."]
    if facts.origin.world == POSTCARDS:
        said.append(
            "It knows the embedded world of postcards and its vocabulary, and nothing else: it is "
            "of use for research on the method alone."
        )
    if not facts.figures.lacking and not facts.figures.has_intervals:
        said.append("Too few seeds were run for any interval: another seed may differ by more.")
    if trained.role == "policy" and trained.record.step == "train_policy":
        said.append("It was trained on a verifier's verdicts, and may do what pleases that one.")
    if "rubrics.jsonl" in trained.record.files:
        said.append("The rubrics that it wrote once, and that its arm kept, are not here.")
    said.append("Nothing was measured of safety, bias, or languages other than the data's.")
    return "\n".join(f"- {line}" for line in said)


def _licence(facts: ModelFacts) -> str:
    stated = facts.license
    base = facts.origin.base
    own = f"`{stated}`." if stated else "Not stated by who pushed this."
    if base is None:
        return own
    its = f"`{base.license}`, as its card states it" if base.license else "not known here"
    return f"{own} The base's: {its}."


def _use(facts: ModelFacts) -> str:
    base = facts.origin.base
    if base is None:
        lines = [
            "from transformers import AutoModelForCausalLM",
            f'model = AutoModelForCausalLM.from_pretrained("{facts.repository}")',
        ]
    else:
        at = f', revision="{base.revision}"' if base.revision else ""
        name = base.repository or "the base's folder"
        lines = [
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM",
            f'base = AutoModelForCausalLM.from_pretrained("{name}"{at})',
            f'model = PeftModel.from_pretrained(base, "{facts.repository}")',
        ]
    code = "\n".join(lines)
    return (
        f"```python\n{code}\n```\n\nPrompts have to be framed as in training: "
        "`load_tokenizer` of `dynamicrubric.engines.tokenizer` reads this folder and does it."
    )
