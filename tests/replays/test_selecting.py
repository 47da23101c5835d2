from __future__ import annotations

import pytest

from karat.bundles.manifest import Identity
from karat.replays.options import Choice, chosen, nothing_chosen

WHO = Identity(suite="models", flow="xnnpack", test="tests/test_m.py::test_a[static-0]")
PATH = "models/xnnpack/tests_test_m.py_test_a_static-0-0123456789abcdef"


@pytest.mark.parametrize(
    "glob",
    [
        PATH,
        "models",
        "models/xnnpack",
        "models/xnnpack/",
        "models/*/*",
        "**/*test_a*",
        "*test_a*",
        "tests/test_m.py::test_a[static-0]",
        "tests/test_m.py::*",
    ],
)
def test_a_case_goes_by_its_path_and_by_its_test(glob: str) -> None:
    assert chosen(PATH, WHO, Choice(only=(glob,)))


@pytest.mark.parametrize(
    "glob", ["mod", "models/portable", "test_a", "*test_b*", "tests/test_m.py"]
)
def test_a_part_of_a_name_is_no_name(glob: str) -> None:
    assert not chosen(PATH, WHO, Choice(only=(glob,)))


def test_suite_and_flow_and_glob_hold_together() -> None:
    assert chosen(PATH, WHO, Choice(suites=("models",), flows=("xnn*", "portable")))
    assert not chosen(PATH, WHO, Choice(suites=("operators",), flows=("xnnpack",)))
    assert not chosen(PATH, WHO, Choice(only=("models",), flows=("portable",)))


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice(flows=("xnpack",)), "did you mean 'xnnpack'?"),
        (Choice(suites=("model",)), "did you mean 'models'?"),
        (Choice(only=("tests/test_m.py::test_a[static-1]",)), "did you mean"),
    ],
)
def test_choosing_nothing_says_what_was_meant(choice: Choice, said: str) -> None:
    finding = nothing_chosen("b.zip", choice, [(PATH, WHO)])
    assert finding.kind == "nothing-compared"
    assert said in finding.message


def test_a_bundle_without_cases_is_said_to_be_one() -> None:
    assert "expected cases in b.zip" in nothing_chosen("b.zip", Choice(), []).message
