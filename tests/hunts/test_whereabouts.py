from __future__ import annotations

from pathlib import Path

import pytest

from factories.commands import karat
from factories.hunts import stepped, values_hunt
from factories.repositories import Repository


@pytest.mark.slow
@pytest.mark.parametrize(("work", "shown"), [("", []), ('work = "mine"\n', ["?? mine/"])])
def test_what_a_hunt_keeps_is_in_nobodys_status(
    tmp_path: Path, work: str, shown: list[str]
) -> None:
    theirs = Repository(tmp_path)
    file = values_hunt(tmp_path, stepped(3))
    file.write_text(work + file.read_text(encoding="utf-8"), encoding="utf-8")
    theirs.write(".gitignore", "ran.txt\n")
    theirs.commit()
    assert karat("hunt", "run", cwd=tmp_path).code == 0
    assert theirs.git("status", "--porcelain").splitlines() == shown
    again = karat("hunt", "run", "--fresh", cwd=tmp_path)
    assert again.code == 0, again.err
