"""Who writes the rubric of a response set: anew for each, once a prompt, or one for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import GenerateEngine, GenerateRequest, Generation
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.prompts.chat import Message

KEPT_RUBRICS_FILE: Final = "rubrics.jsonl"
RenderPrompt = Callable[[str, Sequence[str]], list[int]]
AskFor = Callable[[str, Sequence[str]], list[Message]]


class RubricWriter(Protocol):
    """Writes one rubric for each response set."""

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        """Return the rubric texts, one for each set, in order."""
        ...


class DynamicWriter:
    """The generator reads the prompt and the response set."""

    def __init__(
        self,
        engine: GenerateEngine,
        render: RenderPrompt | None,
        sampling: Sampling,
        ask: AskFor | None = None,
    ) -> None:
        """Write with `engine`.

        Args:
            engine: what writes.
            render: (prompt, responses) to token ids; None for an engine that takes none.
            sampling: how.
            ask: (prompt, responses) to a conversation, for such an engine.
        """
        self._engine = engine
        self._render = render
        self._ask = ask
        self._sampling = sampling

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        """Write a rubric for each set with that set's seed."""
        requests = [
            GenerateRequest(
                self._render(s.prompt, s.shown) if self._render else (),
                seed,
                self._ask(s.prompt, s.shown) if self._ask else (),
            )
            for s, seed in zip(sets, seeds, strict=True)
        ]
        return self._engine.generate(requests, self._sampling)


class KeptWriter:
    """Rubrics written once a prompt, from the prompt alone, and kept (a static evaluator)."""

    def __init__(self, kept: Mapping[str, Generation]) -> None:
        """Use the rubrics by prompt id."""
        self.kept = kept

    @staticmethod
    def is_in(generator_dir: Path) -> bool:
        """Say whether a generator's artefact keeps rubrics."""
        return (generator_dir / KEPT_RUBRICS_FILE).is_file()

    @classmethod
    def load(cls, generator_dir: Path) -> KeptWriter:
        """Read the kept rubrics that a static generator's artefact holds."""
        path = generator_dir / KEPT_RUBRICS_FILE
        if not path.is_file():
            raise UserError(
                doing="loading a static evaluator's kept rubrics",
                got=f"no {path}",
                expected="the file that its first round writes",
                remedy="run that round again",
            )
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        return cls({row["prompt_id"]: _kept(row) for row in rows})

    @classmethod
    def write_once(
        cls, prompts: Mapping[str, str], writer: DynamicWriter, seeds: Mapping[str, int]
    ) -> KeptWriter:
        """Write one rubric for each prompt, from the prompt alone."""
        sets = [ResponseSet(prompt_id, text, ()) for prompt_id, text in prompts.items()]
        texts = writer.write(sets, [seeds[one.prompt_id] for one in sets])
        return cls({one.prompt_id: text for one, text in zip(sets, texts, strict=True)})

    def save(self, generator_dir: Path) -> None:
        """Write the kept rubrics into a generator's artefact."""
        rows = [
            {"prompt_id": prompt_id, "text": text.text, "finish_reason": text.finish_reason}
            | ({} if text.failure is None else {"failure": text.failure})
            for prompt_id, text in self.kept.items()
        ]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (generator_dir / KEPT_RUBRICS_FILE).write_text(lines, encoding="utf-8")

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        """Return each prompt's kept rubric; the sets and seeds change nothing."""
        return [self.kept[s.prompt_id] for s in sets]


def _kept(row: Mapping[str, str]) -> Generation:
    return Generation((), row["text"], row["finish_reason"], failure=row.get("failure"))  # type: ignore[arg-type]


class FixedWriter:
    """One rubric for every response set (a rule-based evaluator); no model writes it."""

    def __init__(self, text: str) -> None:
        """Hand out this rubric text."""
        self._rubric = Generation((), text, "stop")

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        """Return the rubric, once for each set; the seeds change nothing."""
        return [self._rubric for _ in sets]
