"""Which golden a file is, where no [refresh] target says it: by its path, and never by guessing."""

from __future__ import annotations

import pytest

from karat.findings import Finding
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter
from karat.refreshes.identity import Targets
from karat.refreshes.settings import RefreshSettings

G = "golden_values.json"
BERT, GPT = f"tests/bert/tp1/{G}", f"tests/gpt/tp2/{G}"


def found(member: str, artifact: str, *known: str, cases: tuple[str, ...] = ()) -> str | None:
    targets = Targets(RefreshSettings(), PathFilter(DEFAULT_GLOBS), known, cases)
    target = targets.find(member, artifact, {"case": "x"} if cases else {})
    return None if isinstance(target, Finding) else target


@pytest.mark.parametrize(
    ("member", "artifact"),
    [
        (BERT, "."),
        (BERT, "logs-7"),
        (f"bert/tp1/{G}", "tests"),
        (f"bert/tp1/{G}", "."),
        (f"tp1/{G}", "bert"),
        (f"work/repo/{BERT}", "logs-7"),
    ],
)
def test_a_path_that_ends_as_the_golden_s_does(member: str, artifact: str) -> None:
    assert found(member, artifact, BERT, GPT) == BERT


@pytest.mark.parametrize(
    ("member", "artifact"),
    [
        (f"t5/tp1/{G}", "tests"),
        (f"t5/tp1/{G}", "."),
        (f"tp1/{G}", "t5"),
        (f"x/tests/t5/tp1/{G}", "logs-7"),
        (G, "bert"),
        (G, "logs-7"),
        (f"tp3/{G}", "."),
    ],
)
def test_a_folder_of_another_name_is_another_case(member: str, artifact: str) -> None:
    assert found(member, artifact, BERT, GPT) is None


def test_an_artifact_s_name_may_disagree_where_the_file_s_name_is_the_only_one() -> None:
    assert found("goldens/loss.json", "results", "tests/goldens/loss.json") == (
        "tests/goldens/loss.json"
    )
    assert found("goldens/loss.json", "results/other", "tests/goldens/loss.json") is not None
    assert found("other/loss.json", "results", "tests/goldens/loss.json") is None


def test_a_name_alone_does_only_where_nothing_else_was_given() -> None:
    assert found(G, ".", BERT) == BERT
    assert found(G, ".", BERT, GPT) is None
    assert found(G, "logs-7", BERT) is None


def test_two_goldens_that_fit_alike_are_not_guessed_between() -> None:
    known = (f"one/tp1/{G}", f"two/tp1/{G}")
    assert found(f"tp1/{G}", ".", *known) is None
    assert found(f"two/tp1/{G}", ".", *known) == known[1]
    assert found(f"tp1/{G}", "two", *known) == known[1]


def test_a_golden_that_says_another_identity_is_not_it() -> None:
    assert found(BERT, ".", BERT, cases=("tests/{model}/{case}/golden_values.json",)) is None
