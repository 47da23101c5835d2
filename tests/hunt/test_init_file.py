from __future__ import annotations

from pathlib import Path

import pytest

from factories.repositories import Repository
from karat.findings import UsageError
from karat.hunt.hunt_file import read
from karat.hunt.init_file import PRESETS, text


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_hunt_file(name: str, repository: Repository, tmp_path: Path) -> None:
    repository.commit()
    file = tmp_path / "hunt.toml"
    file.write_text(text(name, repository.root), encoding="utf-8")
    settings = read(file)
    assert settings.stages
    assert "@" not in settings.name


def test_the_folder_says_its_repository_branch_and_tag(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit()
    repository.git("tag", "v1.0")
    repository.commit()
    repository.git("checkout", "-q", "-b", "größer")
    inner = repository.root / "tools"
    inner.mkdir()
    file = tmp_path / "hunt.toml"
    file.write_text(text("git", inner), encoding="utf-8")
    settings = read(file)
    assert settings.repositories[0].branch == "größer"
    assert settings.repositories[0].url == ".."
    assert settings.commits is not None
    name = settings.repositories[0].name
    assert (settings.commits.good, settings.commits.bad) == ({name: "v1.0"}, {name: "größer"})


def test_without_a_tag_it_begins_some_way_back(repository: Repository, tmp_path: Path) -> None:
    commits = [repository.commit() for _ in range(3)]
    file = tmp_path / "hunt.toml"
    file.write_text(text("git", repository.root), encoding="utf-8")
    settings = read(file)
    assert settings.commits is not None
    assert list(settings.commits.good.values()) == commits[:1]


def test_without_a_repository_another_preset_is_advised(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="git repository") as raised:
        text("git", tmp_path)
    assert raised.value.next_command == "karat hunt init --preset pypi"


def test_a_repository_without_commits_has_nothing_to_hunt_in(repository: Repository) -> None:
    with pytest.raises(UsageError, match="expected commits"):
        text("git", repository.root)


def test_a_misspelt_preset_is_guessed() -> None:
    with pytest.raises(UsageError, match="did you mean 'jax-nightly'"):
        text("jax-nightlies", Path())
