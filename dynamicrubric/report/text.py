"""Generated text made safe to show: what a model wrote is content, never markup."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_MARKDOWN_SPECIAL: Final = re.compile(r"([\\`*_\[\]|~$#])")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def visible(text: str) -> str:
    r"""Replace control, format and direction characters by names; keep line breaks and spaces.

    >>> visible("a\x1b[31m\u202eb")
    'a<U+001B>[31m<U+202E>b'
    """
    return "".join(
        f"<U+{ord(char):04X}>" if unicodedata.category(char) in _HIDDEN and char != "\n" else char
        for char in text
    )


def markdown_inline(text: str) -> str:
    r"""Escape text for one line of markdown or one cell of a markdown table.

    >>> markdown_inline("a|b <i>*c*</i>")
    'a\\|b &lt;i&gt;\\*c\\*&lt;/i&gt;'
    """
    one_line = " ".join(visible(text).split("\n"))
    html = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _MARKDOWN_SPECIAL.sub(r"\\\1", html)
    return escaped.replace("://", "&#58;//").replace("www.", "www&#46;")  # no link by itself


def markdown_block(text: str) -> str:
    """Return text as a fenced block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}"


def shorten(text: str, limit: int) -> str:
    """Cut text to at most `limit` characters, the last one an ellipsis if anything was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
