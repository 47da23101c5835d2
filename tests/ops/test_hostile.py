"""An audit in a stranger's folder: what lies there is not run, unless it is what was asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import framework
from factories.commands import karat

NAMES = ("torch", "numpy", "msgspec", "click", "expecttest", "scipy", "optree")


@pytest.mark.slow
def test_modules_of_the_folder_shadow_none_of_a_framework(tmp_path: Path) -> None:
    framework("torch")
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open('RAN-{name}', 'w')\n", encoding="utf-8")
    words = ("ops", "audit", "torch", "--select", "nn.functional.hardsigmoid", "--samples", "1")
    done = karat(*words, cwd=tmp_path)
    assert "1 FAIL of 1 operator" in done.out, "its script ran as well"
    assert sorted(path.name for path in tmp_path.glob("RAN-*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_a_journal_that_never_ends_is_one_error(tmp_path: Path, kind: str) -> None:
    framework("torch")
    journal = tmp_path / "journal"
    os.mkfifo(journal) if kind == "a pipe" else journal.symlink_to("/dev/zero")
    done = karat("ops", "audit", "torch", "--select", "sin", "--journal", str(journal), cwd=tmp_path)
    assert (done.code, "it is no plain file" in done.err) == (3, True), done.err
