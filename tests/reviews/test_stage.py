"""`karat stage`: exactly the changed goldens, and not while something fails."""

from __future__ import annotations

import json

import jsonschema
import pytest

from factories.commands import karat
from factories.repositories import Repository, curves, golden_path, golden_text, moved
from karat.goldens.provenance import NAME, LockEntry, decode_lock, read_lock, write_lock
from karat.system.hashes import sha256_hex

A, B = golden_path("a"), golden_path("b")


@pytest.fixture
def tree(repository: Repository) -> Repository:
    for path in (A, B):
        repository.write(path, golden_text(curves(1)))
    repository.write("src/model.py", "x = 1\n")
    repository.commit()
    repository.write("src/model.py", "x = 2\n")
    repository.write("notes.txt", "mine\n")
    return repository


def staged(tree: Repository) -> set[str]:
    return {p for p in tree.git("diff", "--cached", "--name-only", "-z").split("\0") if p}


def slightly(values: dict[str, object]) -> dict[str, object]:
    return {**values, "lm loss": moved(values["lm loss"], 1.00001)}  # type: ignore[arg-type]


@pytest.mark.slow
def test_exactly_the_changed_goldens_and_their_lock(tree: Repository) -> None:
    text = golden_text(slightly(curves(1)))  # type: ignore[arg-type]
    tree.write(A, text)
    write_lock(tree.root / NAME, {A: LockEntry(source="github", sha256=sha256_hex(text.encode()))})
    tree.write("out.csv", "file\n")
    done = karat("stage", "--csv", "out.csv", "--json", "-", cwd=tree.root)
    assert done.code == 0, done.err
    assert staged(tree) == {A, NAME, "out.csv"}
    document = json.loads(done.out)
    jsonschema.validate(document, json.loads(karat("schema", "karat.stage/1", cwd=tree.root).out))
    assert document["goldens"] == [A]


@pytest.mark.slow
def test_a_removed_golden_is_staged_as_such_only_with_a_reason(tree: Repository) -> None:
    (tree.root / B).unlink()
    assert karat("stage", cwd=tree.root).code == 1
    assert staged(tree) == set()
    done = karat("stage", "--force", "--reason", "test is gone", cwd=tree.root)
    assert done.code == 0
    assert staged(tree) == {B, NAME}
    assert read_lock(tree.root / NAME)[B].accepted == "test is gone"
    assert "test is gone" in karat("summary", cwd=tree.root).out


@pytest.mark.slow
def test_a_fail_finding_stands_in_the_way_until_someone_says_why(tree: Repository) -> None:
    tree.write(A, golden_text(curves(1), stop=13))
    done = karat("stage", cwd=tree.root)
    assert done.code == 1
    assert "truncated" in done.out
    assert done.err.startswith("next: ")
    assert staged(tree) == set()
    assert karat("stage", "--force", cwd=tree.root).code == 2
    done = karat("stage", "--force", "--reason", "short run wanted, #42", cwd=tree.root)
    assert done.code == 0
    assert staged(tree) == {A, NAME}
    assert read_lock(tree.root / NAME)[A].accepted == "short run wanted, #42"


@pytest.mark.slow
def test_nothing_changed_is_said_and_a_dry_run_stages_nothing(tree: Repository) -> None:
    done = karat("stage", cwd=tree.root)
    assert (done.code, staged(tree)) == (0, set())
    assert "nothing to stage" in done.out
    tree.write(A, golden_text(slightly(curves(1))))  # type: ignore[arg-type]
    done = karat("stage", "--dry-run", cwd=tree.root)
    assert f"  {A}" in done.out
    assert staged(tree) == set()


def test_a_csv_outside_the_tree_is_refused(tree: Repository) -> None:
    tree.write(A, golden_text(slightly(curves(1))))  # type: ignore[arg-type]
    (tree.root.parent / "out.csv").write_text("x")
    assert karat("stage", "--csv", "../out.csv", cwd=tree.root).code == 2
    assert staged(tree) == set()


def lock_line(text: str, run: str) -> LockEntry:
    return LockEntry(source="github", run=run, sha256=sha256_hex(text.encode()))


def staged_lock(tree: Repository) -> dict[str, str | None]:
    entries = decode_lock(tree.git("show", f":{NAME}").encode(), tree.root / NAME)
    return {path: entry.run for path, entry in entries.items()}


@pytest.mark.slow
def test_of_a_lock_only_the_lines_of_goldens_that_are_staged(tree: Repository) -> None:
    old, new = golden_text(curves(1)), golden_text(slightly(curves(1)))  # type: ignore[arg-type]
    write_lock(tree.root / NAME, {A: lock_line(old, "1"), B: lock_line(old, "1")})
    tree.git("add", NAME)
    tree.git("commit", "--quiet", "--message=lock")
    for path in (A, B):
        tree.write(path, new)
    write_lock(tree.root / NAME, {A: lock_line(new, "2"), B: lock_line(new, "2")})
    done = karat("stage", "--only", A, cwd=tree.root)
    assert done.code == 0, done.err
    assert staged(tree) == {A, NAME}
    assert staged_lock(tree) == {A: "2", B: "1"}
    assert karat("stage", cwd=tree.root).code == 0
    assert staged_lock(tree) == {A: "2", B: "2"}


@pytest.mark.slow
def test_some_lines_of_a_lock_that_was_never_committed(tree: Repository) -> None:
    new = golden_text(slightly(curves(1)))  # type: ignore[arg-type]
    for path in (A, B):
        tree.write(path, new)
    write_lock(tree.root / NAME, {A: lock_line(new, "2"), B: lock_line(new, "2")})
    assert karat("stage", "--only", B, cwd=tree.root).code == 0
    assert staged_lock(tree) == {B: "2"}


@pytest.mark.slow
def test_where_values_were_only_confirmed_their_lock_is_staged(tree: Repository) -> None:
    write_lock(tree.root / NAME, {A: lock_line(golden_text(curves(1)), "2")})
    done = karat("stage", "--dry-run", cwd=tree.root)
    assert (done.code, staged(tree)) == (0, set())
    assert NAME in done.out
    done = karat("stage", cwd=tree.root)
    assert (done.code, staged(tree)) == (0, {NAME})
    assert "nothing to stage" not in done.out


@pytest.mark.slow
def test_without_a_change_the_csv_alone_is_not_staged(tree: Repository) -> None:
    tree.write("out.csv", "file\n")
    done = karat("stage", "--csv", "out.csv", cwd=tree.root)
    assert (done.code, staged(tree)) == (0, set())
    assert "nothing to stage" in done.out


@pytest.mark.slow
def test_samples_are_staged_with_their_golden(tree: Repository) -> None:
    tree.write(A, golden_text(slightly(curves(1))))  # type: ignore[arg-type]
    samples = A.replace(".json", ".samples.json")
    tree.write(samples, "{}")
    tree.write("elsewhere/notes.samples.json", "{}")
    assert karat("stage", cwd=tree.root).code == 0
    assert staged(tree) == {A, samples}


@pytest.mark.slow
def test_samples_that_grew_are_staged_although_their_golden_stands(tree: Repository) -> None:
    """More repeats of the run that the golden is of leave it as it is."""
    samples, other = (path.replace(".json", ".samples.json") for path in (A, B))
    for path in (samples, other):
        tree.write(path, "{}")
    assert karat("stage", "--only", A, cwd=tree.root).code == 0
    assert staged(tree) == {samples}
    done = karat("stage", cwd=tree.root)
    assert staged(tree) == {samples, other}
    assert "what is known of them" in done.out


@pytest.mark.slow
def test_samples_that_git_ignores_stand_in_nobodys_way(tree: Repository) -> None:
    tree.write(".gitignore", "*.samples.json\n")
    tree.write(A, golden_text(slightly(curves(1))))  # type: ignore[arg-type]
    tree.write(A.replace(".json", ".samples.json"), "{}")
    done = karat("stage", cwd=tree.root)
    assert done.code == 0, done.err
    assert staged(tree) == {A}


@pytest.mark.slow
def test_a_glob_that_means_no_golden_does_not_look_like_nothing_to_do(tree: Repository) -> None:
    tree.write(A, golden_text(slightly(curves(1))))  # type: ignore[arg-type]
    done = karat("stage", "--only", "nothere", cwd=tree.root)
    assert (done.code, done.out) == (3, "")
    assert "found none on either side that match nothere" in done.err
    assert staged(tree) == set()
    assert karat("stage", "--only", B, cwd=tree.root).code == 0


@pytest.mark.slow
def test_a_reason_that_overrules_nothing_is_said_to(tree: Repository) -> None:
    tree.write(A, golden_text(slightly(curves(1))))  # type: ignore[arg-type]
    done = karat("stage", "--force", "--reason", "just in case", cwd=tree.root)
    assert done.code == 0
    assert "the reason was not needed" in done.out
    assert staged(tree) == {A}
