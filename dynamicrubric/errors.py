"""Exceptions. `UserError` is for people to act on; `InstrumentError` stops a run.

Bad model output is neither: an unreadable rubric is an `InvalidRubric` and an unreadable verdict is
an unscored `Verdict`, both plain data. Broken invariants of our own code are `assert` or
`ValueError`.
"""

from __future__ import annotations


class DynamicRubricError(Exception):
    """Base of every error this package raises on purpose."""


class UserError(DynamicRubricError, ValueError):
    """Something a person can put right: a setting, an input file, a missing artefact.

    Args:
        doing: what was being done, as a phrase ("reading params.yaml").
        got: what was found.
        expected: what was needed instead.
        remedy: what to do next, as an instruction.

    >>> print(UserError(doing="reading params.yaml", got="rounds: 0", expected="1 or more",
    ...                 remedy="set rounds to at least 1"))
    reading params.yaml: got rounds: 0; expected 1 or more. Set rounds to at least 1.
    """

    def __init__(
        self,
        *,
        doing: str,
        got: str | None = None,
        expected: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.doing = doing
        self.got = got
        self.expected = expected
        self.remedy = remedy
        super().__init__(_message(doing, got, expected, remedy))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by fields: the default would replay the message as a positional argument."""
        return (_rebuild_user_error, (self.doing, self.got, self.expected, self.remedy))


class InstrumentError(DynamicRubricError):
    """A broken instrument: a verifier that is down, or an unscored rate above its limit."""


def _rebuild_user_error(
    doing: str, got: str | None, expected: str | None, remedy: str | None
) -> UserError:
    return UserError(doing=doing, got=got, expected=expected, remedy=remedy)


def _message(doing: str, got: str | None, expected: str | None, remedy: str | None) -> str:
    facts = [f"got {got}"] if got is not None else []
    facts += [f"expected {expected}"] if expected is not None else []
    text = f"{doing}: {'; '.join(facts)}" if facts else doing
    if not text.endswith((".", "\n")):  # a list of lines ends with its last
        text += "."
    if remedy:
        text += "" if text.endswith("\n") else " "
        text += f"{remedy[0].upper()}{remedy[1:]}"
        text += "" if remedy.endswith((".", "!", "?")) else "."
    return text
