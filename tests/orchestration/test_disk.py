"""What is refused before a study begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dynamicrubric.errors import UserError
from tasks import disk
from tasks.disk import check_writable


def test_folders_that_can_be_written_or_are_not_there_pass(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    check_writable([tmp_path / "data", tmp_path / "results"])


def test_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of the system, whose answer root does not get from a mode: so it is given here."""
    for name in ("data", "results"):
        (tmp_path / name).mkdir()
    asked = []

    def access(path: Path, mode: int) -> bool:
        asked.append(mode)
        return path.name != "results"

    monkeypatch.setattr(disk.os, "access", access)
    with pytest.raises(UserError, match=r"no permission at .*results") as refused:
        check_writable([tmp_path / "data", tmp_path / "results"])
    assert "the owner or mode of the folder" in str(refused.value)
    assert set(asked) == {os.W_OK | os.X_OK}
