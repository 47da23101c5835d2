"""examples/op_tests as its README says: tested, gated, and broken in each of the ways it names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from factories.example_suites import copy_example, karat, suite

EVIDENCE = "--karat-evidence=evidence"


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example after its tests, at a path with a space."""
    folder = copy_example("op_tests", tmp_path_factory.mktemp("op tests") / "tiny")
    done = suite(folder, EVIDENCE)
    assert done.code == 0, done.out
    assert "17 passed" in done.out, "and README.md says so"
    return folder


@pytest.fixture
def mine(tested: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return shutil.copytree(tested, tmp_path / "mine")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.slow
def test_the_gate_passes_and_counts_what_the_readme_counts(tested: Path) -> None:
    gate = karat("policy", "gate", "--complete", cwd=tested)
    assert gate.code == 0, gate.out + gate.err
    said = "gate passed: 4 op tests: 3 with evidence, 1 exempt; 10 comparisons"
    assert said in gate.out
    assert said in (tested / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_coverage_is_the_readme_s(tested: Path) -> None:
    shown = karat("policy", "coverage", cwd=tested)
    assert shown.code == 0, shown.err
    table = shown.out.partition("\n\n")[0]
    assert table.count("●") == 4
    assert table in (tested / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_wrong_backward_fails_four_tests_with_its_diagnosis(mine: Path) -> None:
    right = "return y * (v - (y * v).sum(-1, keepdims=True))"
    replace(mine / "tinyops" / "backwards.py", right, "return y * v")
    done = suite(mine, "-k", "softmax", workers=0)
    assert done.code == 1
    assert "4 failed" in done.out
    assert "a term with a sum over it is" in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "lacking"),
    [('self.check_grad(["X"], "Out")', "Beta"), ("pass", "Beta, X")],
    ids=["one input forgotten", "an empty body"],
)
def test_a_suite_that_passes_without_evidence_does_not_pass_the_gate(mine: Path, written: str, lacking: str) -> None:
    replace(mine / "tests" / "test_classes.py", 'self.check_grad(["X", "Beta"], "Out")', written)
    shutil.rmtree(mine / "evidence")
    assert suite(mine, EVIDENCE, workers=0).code == 0
    gate = karat("policy", "gate", "--complete", cwd=mine)
    assert gate.code == 1
    assert f"(op swish): no gradient evidence in float64 for {lacking};" in gate.out


def test_an_operator_that_nobody_checks_is_found(mine: Path) -> None:
    replace(mine / "tinyops" / "ops.py", '"argmax",', '"argmax", "cube",')
    with (mine / "tinyops" / "ops.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef cube(x: Array) -> Array:\n    return x**3\n")
    gate = karat("policy", "gate", "--complete", cwd=mine)
    assert gate.code == 1
    assert "fail  new-op: tinyops.ops.cube" in gate.out


def test_an_exemption_of_an_op_that_has_a_gradient_fails(mine: Path) -> None:
    replace(mine / "exemptions.toml", 'op = "argmax"', 'op = "softmax"')
    gate = karat("policy", "gate", "--complete", cwd=mine)
    assert gate.code == 1
    assert "(op softmax, gradient, no-grad-op, @you)" in gate.out
