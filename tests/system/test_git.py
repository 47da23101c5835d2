from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from factories.repositories import Repository
from karat.findings import CannotVerify
from karat.system import git


@pytest.mark.slow
def test_many_blobs_from_one_process(repository: Repository) -> None:
    texts = {f"f{i}": f"text {i}\n" * (i + 1) for i in range(1_200)}
    for name, text in texts.items():
        repository.write(name, text)
    repository.commit()
    tree = git.tree_paths(repository.root, "HEAD")
    blobs = git.Blobs(repository.root)
    read = list(blobs.read([tree[name] for name in texts]))
    missing = list(blobs.read(["0" * 39 + "1"]))
    again = list(blobs.read([tree["f0"]]))
    blobs.close()
    assert read == [text.encode() for text in texts.values()]
    assert missing == [None]
    assert again == [b"text 0\n"]


def test_a_blob_that_is_too_long_is_its_size_and_the_next_ones_come(repository: Repository) -> None:
    oids = []
    for n in range(6):
        repository.write("a.txt", "x" * (n % 3 * 100_000))
        oids.append(repository.git("hash-object", "-w", "a.txt").strip())
    with closing(git.Blobs(repository.root)) as blobs:
        found = list(blobs.read([*oids, "0" * 40], 150_000))
        assert [len(one) if isinstance(one, bytes) else one for one in found] == [0, 100_000, 200_000] * 2 + [None]
        assert [isinstance(one, bytes) for one in found] == [True, True, False] * 2 + [False]
        assert list(blobs.read(oids[1:2])) == [b"x" * 100_000]


def test_git_that_ends_early_is_cannot_verify(tmp_path: Path) -> None:
    blobs = git.Blobs(tmp_path)  # no repository: git leaves at once
    with pytest.raises(CannotVerify, match="ended before"):
        list(blobs.read(["0" * 40]))
    blobs.close()


def test_what_changed_and_what_there_was(repository: Repository) -> None:
    for name in ("same", "changed", "gone"):
        repository.write(name, name)
    first = repository.commit()
    repository.write("changed", "other")
    repository.write("new", "new")
    (repository.root / "gone").unlink()
    changes, tree = git.TreeComparison(repository.root, first, None).finish()
    found = {c.path: (c.old is not None, c.new_in_worktree) for c in changes}
    assert found == {"changed": (True, True), "gone": (True, False), "new": (False, True)}
    assert tree.keys() == {"same", "changed", "gone"}
    second = repository.commit()
    between, _ = git.TreeComparison(repository.root, first, second).finish()
    assert {c.path: (c.old is not None, c.new is not None) for c in between} == {
        "changed": (True, True),
        "gone": (True, False),
        "new": (False, True),
    }


def test_revisions_resolve_or_not(repository: Repository) -> None:
    commit = repository.commit()
    assert git.resolve(repository.root, "main") == commit
    assert git.resolve(repository.root, "no-such") is None
    assert git.resolve(repository.root, "--output=/tmp/x") is None


def test_a_folder_of_a_revision_is_a_tree_and_a_file_is_none(repository: Repository) -> None:
    repository.write("folder/a.json", "{}")
    repository.commit()
    tree = repository.git("rev-parse", "HEAD:folder").strip()
    assert git.resolve(repository.root, "HEAD:folder") == tree
    assert git.resolve(repository.root, "HEAD:folder/a.json") is None
    assert git.resolve(repository.root, "HEAD:none") is None


def test_no_git_on_path_is_said(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CannotVerify, match="git was expected on PATH"):
        git.run_git(repository.root, "status")
