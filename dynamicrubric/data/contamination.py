"""Which training rows are, or contain, rows of a benchmark.

A training row overlaps a benchmark row if, after normalising (see `normalise`),

- `prompt_equal`: a prompt or a user's turn of the one is one of the other;
- `prompt_sentence`: the benchmark's prompt is too short for n-grams, and is a whole sentence or
  line of the training prompt (a system prompt or an article stands beside it);
- `prompt_ngrams`: half of the words of the benchmark's prompt lie in 8-word runs that this one
  training prompt has too;
- `prompt_inside`: nine tenths of the training prompt lie within the benchmark's longer one;
- `response_equal`, `response_ngrams`: the same of responses, with 13-word runs, and only those at
  least that long: short answers and phrases are everybody's.

Numbers and where they are from: `ContaminationSettings`. What it cannot see: paraphrases and
translations. The benchmarks are held in memory, 16 bytes for each word's gram and about 200 for
each text; of the training rows nothing is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from dynamicrubric.data.formats import TextRow
from dynamicrubric.data.grams import GramIndex
from dynamicrubric.data.normalise import normalise, prompt_key, sentences, words
from dynamicrubric.data.rows import text_hash
from dynamicrubric.data.settings import ContaminationSettings
from dynamicrubric.data.sources import Reading, Source

EXCERPT_CHARS: Final = 80


class OverlapKind(StrEnum):
    """How a training row overlaps a benchmark row; the strongest first."""

    PROMPT_EQUAL = "prompt_equal"
    PROMPT_SENTENCE = "prompt_sentence"
    PROMPT_NGRAMS = "prompt_ngrams"
    PROMPT_INSIDE = "prompt_inside"
    RESPONSE_EQUAL = "response_equal"
    RESPONSE_NGRAMS = "response_ngrams"

    @property
    def is_of_prompt(self) -> bool:
        """True if it is the prompts that overlap."""
        return self.value.startswith("prompt")


_STRENGTH: Final = {kind: place for place, kind in enumerate(OverlapKind)}


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """A row of a benchmark: its place among all, its file, its id, how its prompt begins."""

    number: int
    file: str
    id: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """A training row and a benchmark row that share too much.

    Attributes:
        kind: the strongest reason.
        row: the benchmark's.
        of_benchmark: share of the benchmark text's words that the training text has in runs.
        of_training: share of the training text's words that the benchmark text has in runs.
    """

    kind: OverlapKind
    row: BenchmarkRow
    of_benchmark: float
    of_training: float

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts the strongest overlap first."""
        return (_STRENGTH[self.kind], -self.of_benchmark)


@dataclass
class _Documents:
    """Texts of one sort (prompts, or responses) with the rows they are of."""

    owners: list[int] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)
    equal: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, owner: int, text: str) -> None:
        self.owners.append(owner)
        self.texts.append(words(text))
        self.equal[text_hash(prompt_key(text))].append(owner)


class Benchmarks:
    """The rows of some benchmark files, ready to be looked for."""

    def __init__(
        self, rows: Iterable[tuple[str, TextRow]], settings: ContaminationSettings
    ) -> None:
        self._settings = settings
        self.rows: list[BenchmarkRow] = []
        prompts, responses = _Documents(), _Documents()
        self._sentences: dict[bytes, list[int]] = defaultdict(list)
        for file, row in rows:
            number = len(self.rows)
            self.rows.append(BenchmarkRow(number, file, row.id, excerpt(row.prompts[0])))
            for prompt in _distinctive(row.prompts, settings.min_sentence_words):
                prompts.add(number, prompt)
                if settings.min_sentence_words <= len(prompts.texts[-1]) < settings.prompt_ngram:
                    self._sentences[text_hash(normalise(prompt))].append(number)
            for response in row.responses if settings.responses else ():
                if len(words(response)) >= settings.response_ngram:
                    responses.add(number, response)
        self._prompts, self._responses = prompts, responses
        self._prompt_grams = GramIndex(prompts.texts, settings.prompt_ngram)
        self._response_grams = GramIndex(responses.texts, settings.response_ngram)
        prompts.texts, responses.texts = [], []  # the words are in the indices, as hashes

    @classmethod
    def read(
        cls,
        sources: Sequence[Source],
        settings: ContaminationSettings,
        max_bad_rate: float,
        readings: list[Reading] | None = None,
    ) -> Self:
        """Read benchmark files.

        Args:
            sources: the files.
            settings: what overlaps.
            max_bad_rate: share of a file's rows that may be unreadable.
            readings: filled with what was read of each file.

        Raises:
            UserError: a file cannot be read, or too much of it.
        """

        def rows() -> Iterable[tuple[str, TextRow]]:
            for source in sources:
                reading = Reading(source.name)
                for row in source.text_rows(max_bad_rate, reading):
                    yield source.name, row
                if readings is not None:
                    readings.append(reading)

        return cls(rows(), settings)

    def overlaps(self, row: TextRow) -> list[Overlap]:
        """Return the benchmark rows that a training row overlaps, each once, in their order."""
        found: dict[int, Overlap] = {}
        for prompt in _distinctive(row.prompts, self._settings.min_sentence_words):
            self._match_prompt(prompt, found)
        if self._settings.responses:
            for response in row.responses:
                self._match_response(response, found)
        return [found[number] for number in sorted(found)]

    def _match_prompt(self, prompt: str, found: dict[int, Overlap]) -> None:
        for number in self._prompts.equal.get(text_hash(prompt_key(prompt)), ()):
            self._note(found, number, OverlapKind.PROMPT_EQUAL, 1.0, 1.0)
        own = words(prompt)
        for sentence in sentences(prompt) if self._sentences else ():
            for number in self._sentences.get(text_hash(sentence), ()):
                share = (sentence.count(" ") + 1) / len(own)
                self._note(found, number, OverlapKind.PROMPT_SENTENCE, 1.0, min(1.0, share))
        for shared in self._prompt_grams.shared(own):
            number = self._prompts.owners[shared.document]
            if shared.of_document >= self._settings.min_share:
                kind = OverlapKind.PROMPT_NGRAMS
            elif shared.of_text >= self._settings.min_share_of_training:
                kind = OverlapKind.PROMPT_INSIDE
            else:
                continue
            self._note(found, number, kind, shared.of_document, shared.of_text)

    def _match_response(self, response: str, found: dict[int, Overlap]) -> None:
        own = words(response)
        if len(own) < self._settings.response_ngram:
            return
        for number in self._responses.equal.get(text_hash(" ".join(own)), ()):
            self._note(found, number, OverlapKind.RESPONSE_EQUAL, 1.0, 1.0)
        for shared in self._response_grams.shared(own):
            if shared.of_document >= self._settings.min_share:
                number = self._responses.owners[shared.document]
                kind = OverlapKind.RESPONSE_NGRAMS
                self._note(found, number, kind, shared.of_document, shared.of_text)

    def _note(
        self, found: dict[int, Overlap], number: int, kind: OverlapKind, *shares: float
    ) -> None:
        """Keep the strongest overlap with each benchmark row."""
        overlap = Overlap(kind, self.rows[number], *shares)
        known = found.get(number)
        if known is None or overlap.rank < known.rank:
            found[number] = overlap


def _distinctive(prompts: Sequence[str], min_words: int) -> list[str]:
    """Return the prompts of a row that mean something alone: not a turn like "go on"."""
    if len(prompts) == 1:
        return list(prompts)
    return [prompt for prompt in prompts if len(words(prompt)) >= min_words]


def excerpt(text: str) -> str:
    """Return how a text begins, on one line."""
    shown = " ".join(text.split())
    return shown if len(shown) <= EXCERPT_CHARS else shown[: EXCERPT_CHARS - 3] + "..."
