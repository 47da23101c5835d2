from __future__ import annotations

from pathlib import Path

from factories.commands import karat_here
from factories.hunts import BEGAN, commit_at, commits_hunt, dated_commits, stepped, values_hunt
from factories.repositories import Repository


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(3))
    before = sorted(tmp_path.rglob("*"))
    assert karat_here("hunt", "run", "--dry-run", cwd=tmp_path).code == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_the_clones_of_a_dry_run_are_in_nobody_s_git_status(repository: Repository) -> None:
    dated_commits(repository, [100, 100, 90])
    more = "[commits]\ngood = { code = 'main~2' }\n"
    commits_hunt(repository.root, {"code": repository}, "cat speed", more, ["commits"])
    commit_at(repository, BEGAN, "the hunt")
    result = karat_here("hunt", "run", "--dry-run", cwd=repository.root)
    assert result.code == 0, result.err
    assert (repository.root / ".karat" / "hunt" / "mirrors").is_dir()
    assert repository.git("status", "--porcelain") == ""
