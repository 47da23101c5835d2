from __future__ import annotations

from pathlib import Path

from factories.commands import karat_here
from factories.repositories import Repository


def test_a_file_is_written_and_the_next_command_said(repository: Repository) -> None:
    repository.commit()
    done = karat_here("hunt", "init", cwd=repository.root)
    assert (done.code, done.err) == (0, "next: karat hunt run --dry-run\n")
    assert done.out.startswith("wrote hunt.toml: ")
    assert (repository.root / "hunt.toml").read_text(encoding="utf-8").startswith("# Which commit")


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "hunt.toml").write_text("mine", encoding="utf-8")
    refused = karat_here("hunt", "init", "--preset", "pypi", cwd=tmp_path)
    assert refused.code == 2
    assert "already exists and was not changed" in refused.err
    assert (tmp_path / "hunt.toml").read_text(encoding="utf-8") == "mine"
    advised = refused.err.splitlines()[-1].removeprefix("next: karat ").split()
    assert karat_here(*advised, cwd=tmp_path).code == 0
    assert (tmp_path / "hunt.toml").read_text(encoding="utf-8") == "mine"
    assert "[packages]" in (tmp_path / "other-hunt.toml").read_text(encoding="utf-8")


def test_to_stdout_nothing_else_is_said(tmp_path: Path) -> None:
    done = karat_here("hunt", "init", "--preset", "jax-nightly", "--output", "-", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert 'stages = ["containers by day", "checkouts by hour", "commits"]' in done.out
    assert list(tmp_path.iterdir()) == []


def test_scripts_of_a_preset_are_files_and_those_that_are_there_stay(tmp_path: Path) -> None:
    (tmp_path / "test.sh").write_text("mine", encoding="utf-8")
    done = karat_here("hunt", "init", "--preset", "jax-nightly", cwd=tmp_path)
    assert done.out.startswith("wrote hunt.toml and build.sh, setup.sh, what.sh: ")
    assert "build-jax.sh --src-path-jax" in (tmp_path / "build.sh").read_text(encoding="utf-8")
    assert (tmp_path / "test.sh").read_text(encoding="utf-8") == "mine"


def test_an_unknown_preset_is_wrong_usage(tmp_path: Path) -> None:
    done = karat_here("hunt", "init", "--preset", "got", cwd=tmp_path)
    assert done.code == 2
    assert "did you mean 'git'" in done.err


def test_where_nothing_can_be_written_it_says_so() -> None:
    done = karat_here("hunt", "init", "--preset", "pypi", cwd=Path("/proc/self"))
    assert done.code == 3
    assert "expected to write hunt.toml" in done.err
