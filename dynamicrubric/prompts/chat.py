"""The one renderer of chats for real models: token ids, never text.

A model's own chat template says which frame stands around the contents. It is asked once for each
sequence of roles, with markers in place of contents; from then on the frame is ours. Control tokens
go in by id, and what lies between two of them is encoded with special-token parsing off, so a
content that spells `<|im_end|>` is those characters and opens no turn (case 51). What a template
does to a content (cutting thinking blocks out of an assistant's turn, say) is not done; only
blanks around it are trimmed where the template trims them.

The tokenizer comes in as two functions, so this module needs no library of models;
`engines.chat.chat_frame` makes a frame from a transformers tokenizer and checks it against
`apply_chat_template`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from dynamicrubric.errors import UserError

Message = tuple[str, str]
"""Role and content."""

_MARKER: Final = "\ue000{}\ue001"  # private-use characters: no frame has them
_BLANKS: Final = " \n"


@dataclass(frozen=True)
class ChatFrame:
    """Renders messages as token ids that end where the assistant's answer begins.

    Attributes:
        template: messages to the text of the model's template, with what asks for an answer.
        encode: text to ids as content: special-token parsing off, nothing added.
        controls: text of each control token -> its id, thinking markers and the like included.
        trims: whether the template strips blanks around contents.
    """

    template: Callable[[Sequence[Message]], str]
    encode: Callable[[str], Sequence[int]]
    controls: Mapping[str, int]
    trims: bool
    _frames: dict[tuple[str, ...], list[list[int | str]]] = field(default_factory=dict, repr=False)

    @classmethod
    def from_template(
        cls,
        template: Callable[[Sequence[Message]], str],
        encode: Callable[[str], Sequence[int]],
        controls: Mapping[str, int],
    ) -> ChatFrame:
        """Derive a frame from what a template makes of a user's message.

        Raises:
            UserError: the template repeats, drops or changes contents.
        """
        padded = _BLANKS + _MARKER.format(0) + _BLANKS
        frame = cls(template, encode, controls, padded not in template([("user", padded)]))
        frame._frame_of(("user",))
        return frame

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation and of the frame that asks for the next answer.

        Raises:
            UserError: the template changes contents in such a conversation.
        """
        contents = [content.strip() if self.trims else content for _, content in messages]
        frame = self._frame_of([role for role, _ in messages])
        return self._encode([*_interleave(frame, contents), *frame[-1]])

    def split(self, messages: Sequence[Message], ending: str) -> tuple[list[int], list[int]]:
        """Render messages whose last content goes on with `ending`, cut in front of it.

        The ids in front of the cut do not depend on `ending`, so prompts that share the messages
        share them. The two halves together are `render` of the joined content, but for a token
        that would cross the cut; none does where a letter meets a colon.
        """
        contents = [content.strip() if self.trims else content for _, content in messages]
        if self.trims:
            contents[-1] = messages[-1][1].lstrip()
            ending = ending.rstrip()
        frame = self._frame_of([role for role, _ in messages])
        return self._encode(_interleave(frame, contents)), self._encode([ending, *frame[-1]])

    def _frame_of(self, roles: Sequence[str]) -> list[list[int | str]]:
        """Return what stands around the contents: len(roles) + 1 runs of control ids and text."""
        key = tuple(roles)
        if key not in self._frames:
            self._frames[key] = [self._cut(text) for text in self._ask_template(key)]
        return self._frames[key]

    def _ask_template(self, roles: Sequence[str]) -> list[str]:
        markers = [_MARKER.format(place) for place in range(len(roles))]
        text = self.template(list(zip(roles, markers, strict=True)))
        found = re.findall("|".join(markers), text)
        if found != markers:
            raise UserError(
                doing=f"deriving a chat frame for {', '.join(roles)}",
                got=f"{len(found)} contents in the text of the model's chat template",
                expected=f"each of the {len(roles)} contents once, in order and unchanged",
                remedy="use a model whose chat template leaves contents as they are",
            )
        return re.split("|".join(markers), text)

    def _cut(self, text: str) -> list[int | str]:
        longest_first = sorted(self.controls, key=len, reverse=True)
        pieces = re.split(f"({'|'.join(map(re.escape, longest_first)) or '$^'})", text)
        return [self.controls.get(piece, piece) for piece in pieces]

    def _encode(self, pieces: Iterable[int | str]) -> list[int]:
        """Put control ids where they stand, and encode what lies between two of them as one text.

        As one: a tokenizer that reads the template's text would see no seam between frame and
        content either.
        """
        ids: list[int] = []
        for is_control, run in groupby(pieces, key=lambda piece: isinstance(piece, int)):
            if is_control:
                ids += [int(piece) for piece in run]
            else:
                ids += self.encode("".join(map(str, run)))
        return ids


def _interleave(frame: Sequence[list[int | str]], contents: Sequence[str]) -> Iterator[int | str]:
    """Yield frame and contents in turn, up to the last content."""
    for run, content in zip(frame, contents, strict=False):
        yield from run
        yield content
