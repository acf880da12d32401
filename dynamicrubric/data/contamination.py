"""Which training rows are, or contain, rows of a benchmark.

A training row overlaps a benchmark row if, after normalising (see `normalise`),

- `prompt_equal`: a prompt or a user's turn of the one is one of the other;
- `prompt_reordered`: they have the same words in another order ("why the sky is blue");
- `prompt_sentence`: the benchmark's prompt is too short for n-grams, and is a whole sentence or
  line of the training prompt (a system prompt or an article stands beside it);
- `prompt_ngrams`: half of the words of the benchmark's prompt lie in 8-word runs that this one
  training prompt has too;
- `prompt_inside`: nine tenths of the training prompt lie within the benchmark's longer one;
- `response_equal`, `response_ngrams`: the same of responses, with 13-word runs, and only those at
  least that long: short answers and phrases are everybody's.

Labels that templates put before the parts of a prompt ("### Input:") are not compared, and runs
that many benchmark prompts share are phrases and not counted. Numbers and where they are from:
`ContaminationSettings`. What it cannot see: paraphrases and translations. The benchmarks are held
in memory, 16 bytes for each word's gram and about 200 for each text; of the training rows nothing
is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from dynamicrubric.data.formats import TextRow
from dynamicrubric.data.grams import GramIndex
from dynamicrubric.data.normalise import prompt_key, sentences, words
from dynamicrubric.data.rows import text_hash
from dynamicrubric.data.settings import ContaminationSettings
from dynamicrubric.data.sources import Reading, Source

EXCERPT_CHARS: Final = 80


class OverlapKind(StrEnum):
    """How a training row overlaps a benchmark row; the strongest first."""

    PROMPT_EQUAL = "prompt_equal"
    PROMPT_REORDERED = "prompt_reordered"
    PROMPT_SENTENCE = "prompt_sentence"
    PROMPT_NGRAMS = "prompt_ngrams"
    PROMPT_INSIDE = "prompt_inside"
    RESPONSE_EQUAL = "response_equal"
    RESPONSE_NGRAMS = "response_ngrams"

    @property
    def is_of_prompt(self) -> bool:
        """True if it is the prompts that overlap."""
        return self.value.startswith("prompt")


_LABEL: Final = re.compile(
    r"^[#* \t]*(?:instruction|input|question|prompt|human|user|assistant|response|answer|output)s?"
    r"[* \t]*:",
    re.IGNORECASE | re.MULTILINE,
)
"""What Alpaca's, PandaLM's and Nectar's templates write before a part."""
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


class _Documents:
    """Texts of one sort (prompts, or responses) with the rows they are of."""

    def __init__(self) -> None:
        self.owners: list[int] = []
        self.equal: dict[bytes, list[int]] = defaultdict(list)
        self._texts: list[list[str]] = []
        self._groups: list[int] = []
        self._group_of: dict[bytes, int] = {}

    def add(self, owner: int, own: list[str], key: str, group: bytes) -> None:
        self.owners.append(owner)
        self._texts.append(own)
        self._groups.append(self._group_of.setdefault(group, len(self._group_of)))
        self.equal[text_hash(key)].append(owner)

    def index(self, n: int, max_groups: int) -> GramIndex:
        """Return the index of the texts; their words are in it, as hashes, and no more here."""
        index = GramIndex(self._texts, self._groups, n, max_groups)
        self._texts, self._groups, self._group_of = [], [], {}
        return index


class Benchmarks:
    """The rows of some benchmark files, ready to be looked for."""

    def __init__(
        self, rows: Iterable[tuple[str, TextRow]], settings: ContaminationSettings
    ) -> None:
        self._settings = settings
        self.rows: list[BenchmarkRow] = []
        self._prompts, self._responses = _Documents(), _Documents()
        self._reordered: dict[bytes, list[int]] = defaultdict(list)
        self._sentences: dict[bytes, list[int]] = defaultdict(list)
        for file, row in rows:
            self._add(file, row)
        most = settings.max_prompts_of_phrase
        self._prompt_grams = self._prompts.index(settings.prompt_ngram, most)
        self._response_grams = self._responses.index(settings.response_ngram, most)

    def _add(self, file: str, row: TextRow) -> None:
        one = self._settings
        number = len(self.rows)
        self.rows.append(BenchmarkRow(number, file, row.id, excerpt(row.prompts[0])))
        for prompt in self._distinctive(row.prompts):
            own = words(prompt)
            self._prompts.add(number, own, prompt_key(prompt), text_hash(prompt_key(prompt)))
            if len(own) >= one.min_sentence_words:
                self._reordered[text_hash(" ".join(sorted(own)))].append(number)
                if len(own) < one.prompt_ngram:
                    self._sentences[text_hash(" ".join(own))].append(number)
        group = text_hash(prompt_key(_unlabelled(row.prompts[0])))
        for response in row.responses if one.responses else ():
            own = words(response)
            if len(own) >= one.response_ngram:
                self._responses.add(number, own, " ".join(own), group)

    def _distinctive(self, prompts: Sequence[str]) -> list[str]:
        """Return the prompts of a row that mean something alone: not a turn like "go on"."""
        bare = [_unlabelled(prompt) for prompt in prompts]
        if len(bare) == 1:
            return bare
        return [
            prompt for prompt in bare if len(words(prompt)) >= self._settings.min_sentence_words
        ]

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
        if not self.rows:
            return []
        found: dict[int, Overlap] = {}
        for prompt in self._distinctive(row.prompts):
            self._match_prompt(prompt, found)
        if self._settings.responses:
            for response in row.responses:
                self._match_response(response, found)
        return [found[number] for number in sorted(found)]

    def _match_prompt(self, prompt: str, found: dict[int, Overlap]) -> None:
        for number in self._prompts.equal.get(text_hash(prompt_key(prompt)), ()):
            self._note(found, number, OverlapKind.PROMPT_EQUAL, 1.0, 1.0)
        own = words(prompt)
        for number in self._reordered.get(text_hash(" ".join(sorted(own))), ()):
            self._note(found, number, OverlapKind.PROMPT_REORDERED, 1.0, 1.0)
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


def _unlabelled(prompt: str) -> str:
    """Return a prompt without a template's labels; as it is if it is nothing but labels."""
    bare = _LABEL.sub("", prompt)
    return bare if bare.strip() else prompt


def excerpt(text: str) -> str:
    """Return how a text begins, on one line."""
    shown = " ".join(text.split())
    return shown if len(shown) <= EXCERPT_CHARS else shown[: EXCERPT_CHARS - 3] + "..."
