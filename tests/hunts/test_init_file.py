from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from factories.repositories import Repository
from karat.findings import UsageError
from karat.hunts.hunt_toml import PRESETS, preset_text, read


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_hunt_file(name: str, repository: Repository, tmp_path: Path) -> None:
    repository.commit()
    file = tmp_path / "hunt.toml"
    file.write_text(preset_text(name, repository.root), encoding="utf-8")
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
    file.write_text(preset_text("git", inner), encoding="utf-8")
    settings = read(file)
    assert settings.repositories[0].branch == "größer"
    assert settings.repositories[0].url == ".."
    assert settings.commits is not None
    name = settings.repositories[0].name
    assert (settings.commits.good, settings.commits.bad) == ({name: "v1.0"}, {name: "größer"})


def test_without_a_tag_it_begins_some_way_back(repository: Repository, tmp_path: Path) -> None:
    commits = [repository.commit() for _ in range(3)]
    file = tmp_path / "hunt.toml"
    file.write_text(preset_text("git", repository.root), encoding="utf-8")
    settings = read(file)
    assert settings.commits is not None
    assert list(settings.commits.good.values()) == commits[:1]


def test_without_a_repository_another_preset_is_advised(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="git repository") as raised:
        preset_text("git", tmp_path)
    assert raised.value.next_command == "karat hunt init --preset pypi"


def test_a_repository_without_commits_has_nothing_to_hunt_in(repository: Repository) -> None:
    with pytest.raises(UsageError, match="expected commits"):
        preset_text("git", repository.root)


def test_a_misspelt_preset_is_guessed() -> None:
    with pytest.raises(UsageError, match="did you mean 'jax-nightly'"):
        preset_text("jax-nightlies", Path())


def _scripts(folder: Path) -> Path:
    """The scripts that stand at the end of the preset, written beside it as it says, and programs that only say their words."""
    folder.mkdir()
    parts = (
        preset_text("jax-nightly", folder).partition("\n# The scripts.")[2].split("\n# --- ")[1:]
    )
    for part in parts:
        name, _, lines = part.partition("\n")
        body = "".join(
            f"{line.removeprefix('#').removeprefix(' ')}\n" for line in lines.split("\n")
        )
        (folder / name).write_text(body, encoding="utf-8")
    for name in ("pip", "python3", "build-jax.sh"):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\necho "$(basename "$0") $*"\n', encoding="utf-8")
        program.chmod(0o755)
    return folder


def _said(script: Path, cwd: Path) -> list[str]:
    path = f"{script.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", script], cwd=cwd, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )  # fmt: skip
    return done.stdout.splitlines()


def test_the_scripts_of_jax_nightly_do_what_it_says(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit()
    scripts = _scripts(tmp_path / "dir with blanks")
    assert {file.name for file in scripts.glob("*.sh")} == {
        word.removeprefix("/dir/")
        for word in re.findall(r'"(/dir/\w+\.sh)"', preset_text("jax-nightly", tmp_path))
    }
    area = tmp_path / "area"
    (area / "jax/dist").mkdir(parents=True)
    wheel, other = area / "jax/dist/jaxlib-0.4.14.whl", area / "jax/dist/notes"
    wheel.touch()
    other.touch()
    repository.root.rename(area / "xla")
    assert _said(scripts / "build.sh", area) == [
        f"build-jax.sh --src-path-jax {area}/jax --src-path-xla {area}/xla"
    ]
    assert (wheel.exists(), other.exists()) == (False, True)
    assert _said(scripts / "what.sh", area) == [f"commit.xla={commit}"]
