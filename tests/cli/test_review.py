"""`karat review`, `accept` and `reject` where nobody sits at a terminal."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from factories.commands import karat_here
from factories.repositories import Repository
from factories.reviewed import LOSS, A, B, C, D, changed, everything, status
from karat.goldens.provenance import NAME, read_lock
from karat.schemas import schema


@pytest.fixture
def tree(repository: Repository) -> Repository:
    return changed(repository)


def groups(tree: Repository) -> dict[str, list[str]]:
    """Id → goldens, worst first."""
    done = karat_here("review", "--json", "-", cwd=tree.root)
    document = json.loads(done.out)
    jsonschema.validate(document, schema("karat.review/1"))
    assert document["exit_code"] == done.code
    return {cause["id"]: [golden["path"] for golden in cause["goldens"]] for cause in document["causes"]}


def test_in_a_pipe_it_says_what_to_decide_and_how_and_next_decides_nothing(tree: Repository) -> None:
    before = everything(tree)
    done = karat_here("review", cwd=tree.root)
    assert done.code == 1
    assert "4 goldens: 4 to decide" in done.out
    for line in re.findall(r"(?:to take it|to put it back): +karat (.+)", done.out):
        assert re.fullmatch(r"(accept|reject) --group g[0-9a-f]{7}( --reason '…')?", line)
    assert done.out.rstrip().endswith("next: karat diff --html report.html")
    assert "karat hunt split" in done.out
    assert everything(tree) == before


def test_groups_keep_their_ids_while_others_are_decided(tree: Repository) -> None:
    first, *rest = groups(tree)
    assert karat_here("reject", "--group", first, cwd=tree.root).code == 0
    assert list(groups(tree)) == rest
    done = karat_here("accept", "--group", rest[0], "--exclude", "*b b*", cwd=tree.root)
    assert (done.code, done.out) == (0, f"accepted {A}\n")
    assert status(tree) == {A: "M ", B: " M", D: "??", NAME: "MM", "notes.txt": "M "}
    assert karat_here("accept", "--group", "1", cwd=tree.root).code == 0
    assert status(tree)[B] == "M "
    assert karat_here("review", cwd=tree.root).code == 0


def test_what_fails_is_refused_without_a_reason(tree: Repository) -> None:
    before = everything(tree)
    done = karat_here("accept", A, C, "--json", "-", cwd=tree.root)
    document = json.loads(done.out)
    jsonschema.validate(document, schema("karat.decision/1"))
    assert (done.code, document["exit_code"], document["paths"]) == (1, 1, [])
    assert "truncated" in karat_here("accept", A, C, cwd=tree.root).out
    assert everything(tree) == before
    assert karat_here("accept", A, C, "--reason", "known", cwd=tree.root).code == 0
    assert read_lock(tree.root / NAME)[C].accepted == "known"
    assert "Accepted despite fail findings (1):" in (text := karat_here("summary", cwd=tree.root).out)
    assert "known" in text


def test_what_was_rejected_comes_back_with_the_command_that_is_told(tree: Repository) -> None:
    new = (tree.root / D).read_text()
    document = json.loads(karat_here("reject", D, A, "--json", "-", cwd=tree.root).out)
    assert sorted(document["paths"]) == [A, D]
    (command,) = (f["next"] for f in document["findings"] if f["path"] == D)
    oid = command.split()[3]
    assert tree.git("cat-file", "-p", oid) == new
    assert not {A, D} & status(tree).keys()


def test_a_metric_alone_and_a_dry_run(tree: Repository) -> None:
    before = everything(tree)
    done = karat_here("reject", A, "--metric", LOSS, "--dry-run", cwd=tree.root)
    assert done.out == f"would reject 1 golden\n  {A}\n"
    told = json.loads(karat_here("reject", A, "--dry-run", "--json", "-", cwd=tree.root).out)
    jsonschema.validate(told, schema("karat.decision/1"))
    assert (told["verb"], told["paths"], told["exit_code"]) == ("would reject", [A], 0)
    assert everything(tree) == before
    assert karat_here("accept", A, "--metric", LOSS, cwd=tree.root).out == f"accepted {LOSS} of {A}\n"
    assert status(tree)[A] == "MM"
    assert karat_here("reject", A, "--metric", LOSS, cwd=tree.root).code == 0
    assert status(tree)[A] == " M"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected goldens to accept: a path, a GLOB or --group N"),
        (("nothing*",), "expected a changed golden that matches 'nothing*', found none among 4 that changed"),
        (("--group", "9"), "--group 9: expected a number from 1 to 3, or an id"),
        ((A, B, "--metric", LOSS), "--metric: expected one golden, found 2"),
        ((A, "--metric", "los"), "that changed (num-zeros, lm loss), found los"),
    ],
)
def test_wrong_words_are_told(tree: Repository, words: tuple[str, ...], said: str) -> None:
    before = everything(tree)
    done = karat_here("accept", *words, cwd=tree.root)
    assert done.code == 2
    assert said in done.err
    assert everything(tree) == before


def test_stage_takes_a_group_or_leaves_some_out(tree: Repository) -> None:
    _, drift, _ = groups(tree)
    assert karat_here("stage", "--group", drift, "--exclude", "*b b*", cwd=tree.root).code == 0
    assert status(tree) == {A: "M ", B: " M", C: " M", D: "??", NAME: "MM", "notes.txt": "M "}
    assert karat_here("stage", "--exclude", C, cwd=tree.root).code == 0
    assert status(tree) == {A: "M ", B: "M ", C: " M", D: "A ", NAME: "M ", "notes.txt": "M "}


def test_nothing_changed_is_nothing_to_decide(repository: Repository) -> None:
    repository.write(A, "{}")
    repository.commit()
    done = karat_here("review", cwd=repository.root)
    assert (done.code, done.out) == (0, "No golden changed; 1 unchanged\n")
