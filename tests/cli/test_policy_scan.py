from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from factories.commands import Outcome, karat
from karat.schemas import schema

SCHEMA = schema("karat.policy-scan/1")
GOOD = """from op_test import OpTest


class TestRelu(OpTest):
    def setUp(self):
        self.op_type = "relu"

    def test_check_grad(self):
        self.check_grad(["X"], "Out")
"""
SKIPPED = """from op_test import OpTest, skip_check_grad_ci


@skip_check_grad_ci(reason="has no gradient kernel")
class TestArgmax(OpTest):
    def setUp(self):
        self.op_type = "argmax"

    def test_check_output(self):
        self.check_output()
"""
EMPTY = GOOD.replace('self.check_grad(["X"], "Out")', "pass")
EXEMPTION = """[[exemption]]
op = "argmax"
kind = "no-grad-op"
reason = "gives indices, which do not move with the input"
owner = "@alice"
issue = "https://example.invalid/1"
expires = 2030-01-01
"""


@pytest.fixture
def where(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_relu_op.py").write_text(GOOD)
    return tmp_path


def scan(where: Path, *words: str, today: str = "2026-06-01") -> Outcome:
    result = karat("policy", "scan", *words, "--json", "s.json", cwd=where, KARAT_TODAY=today)
    if result.code != 2:
        report = json.loads((where / "s.json").read_bytes())
        jsonschema.validate(report, SCHEMA)
        assert report["exit_code"] == result.code
    return result


def test_nothing_to_object_to_is_0(where: Path) -> None:
    result = scan(where, "tests")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("1 file, 1 op test class: 1 with a gradient check · ")


def test_an_empty_check_is_1_with_its_line_and_the_next_command(where: Path) -> None:
    (where / "tests" / "test_relu_op.py").write_text(EMPTY)
    result = scan(where, "tests")
    assert result.code == 1
    assert "fail check-empty  1: a test named after a gradient check does nothing" in result.out
    assert "tests/test_relu_op.py:8  TestRelu: test_check_grad holds only pass" in result.out
    assert "1 without" in result.out
    assert result.err == "next: sed -n 8,+9p tests/test_relu_op.py\n"


def test_a_folder_without_op_tests_is_3(where: Path) -> None:
    (where / "none").mkdir()
    result = scan(where, "tests", "none")
    assert result.code == 3
    assert "expected op tests below none, found no Python file" in result.out
    assert result.err == "next: karat policy scan none --base-class NAME\n"
    assert karat("policy", "scan", "nowhere", cwd=where).code == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "missing argument 'PATH...'"),
        (("tests", "--fail-on", "check-emty"), "did you mean 'check-empty'?"),
        (("tests", "--base-class", "a b"), "expected --base-class to name a class"),
        (("tests", "--jobs", "0"), "0 is not in the range"),
        (("tests", "--sarif", "s.json"), "at most one report on s.json"),
    ],
)
def test_wrong_usage_is_2(where: Path, words: tuple[str, ...], said: str) -> None:
    result = scan(where, *words)
    assert result.code == 2
    assert said in result.err
    assert result.err.splitlines()[-1].startswith("next: ")


@pytest.mark.slow
def test_fail_on_says_what_fails(where: Path) -> None:
    (where / "tests" / "test_argmax_op.py").write_text(SKIPPED)
    assert scan(where, "tests").code == 0
    assert scan(where, "tests", "--fail-on", "warn").code == 1
    assert scan(where, "tests", "--fail-on", "skip-without-exemption").code == 1
    (where / "tests" / "test_relu_op.py").write_text(EMPTY)
    assert scan(where, "tests", "--fail-on", "none").code == 0


@pytest.mark.slow
def test_skips_are_held_against_exemptions_where_there_are_any(where: Path) -> None:
    (where / "tests" / "test_argmax_op.py").write_text(SKIPPED)
    (where / "exemptions.toml").write_text(EXEMPTION)
    result = scan(where, "tests", "--all")
    assert result.code == 0
    assert "TestArgmax has no gradient check; exempt by exemptions.toml:1" in result.out
    assert scan(where, "tests", today="2031-01-01").code == 1
    (where / "exemptions.toml").write_text(EXEMPTION.replace("argmax", "argmin"))
    result = scan(where, "tests")
    assert result.code == 1
    assert "TestArgmax skips its gradient check and no exemption covers that (has no gradient kernel)" in result.out
    (where / "exemptions.toml").write_text(EXEMPTION.replace("no-grad-op", "too-slow"))
    result = scan(where, "tests")
    assert result.code == 1
    assert "fail exemption-invalid" in result.out


@pytest.mark.slow
def test_long_lists_are_cut_unless_all_is_asked_for(where: Path) -> None:
    body = "    def test_check_grad(self): pass\n"
    classes = "".join(f"class T{n}(OpTest):\n{body}" for n in range(30))
    (where / "tests" / "test_relu_op.py").write_text(f"from op_test import OpTest\n{classes}")
    result = scan(where, "tests")
    assert "… and 10 more (--all lists them)" in result.out
    assert "T29:" not in result.out
    assert "T29:" in scan(where, "tests", "--all").out


@pytest.mark.slow
def test_reports_go_where_they_are_asked_to(where: Path) -> None:
    (where / "tests" / "test_relu_op.py").write_text(EMPTY)
    result = karat("policy", "scan", "tests", "--sarif", "-", cwd=where)
    (run,) = json.loads(result.out)["runs"]
    assert [r["ruleId"] for r in run["results"]] == ["check-empty"]
    result = karat("policy", "scan", "tests", "--json", "-", "-q", cwd=where)
    assert json.loads(result.out)["states"] == {"unchecked": 1}
    assert result.err == ""


@pytest.mark.slow
def test_exclude_base_class_and_jobs(where: Path) -> None:
    (where / "tests" / "old").mkdir()
    (where / "tests" / "old" / "test_x.py").write_text(EMPTY)
    (where / "tests" / "test_own.py").write_text(EMPTY.replace("OpTest", "Kernel").replace("op_test", "lib"))
    result = scan(where, "tests", "--exclude", "old", "--jobs", "2")
    assert result.code == 0
    assert " · 1 file excluded · " in result.out
    result = scan(where, "tests", "--exclude", "old", "--base-class", "Kernel")
    assert result.code == 1
    assert "tests/test_own.py:8" in result.out


def test_names_from_the_tree_cannot_write_to_the_terminal(where: Path) -> None:
    (where / "tests" / "test_\x1b[31m.py").write_text(EMPTY)
    result = scan(where, "tests")
    assert result.code == 1
    assert "\x1b" not in result.out + result.err


@pytest.mark.slow
def test_many_files_are_shared_between_processes(where: Path) -> None:
    for n in range(400):
        (where / "tests" / f"test_{n}.py").write_text(GOOD)
    result = scan(where, "tests")
    assert result.code == 0
    assert result.out.startswith("401 files, 401 op test classes: 401 with a gradient check")


def test_a_scanned_tree_is_not_imported_from_not_even_by_python_m(where: Path) -> None:
    for name in ("msgspec", "click", "rich"):
        (where / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')\n")
    words = [sys.executable, "-m", "karat", "policy", "scan", "tests"]
    result = subprocess.run(words, cwd=where, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "1 with a gradient check" in result.stdout


def test_python_m_works_where_the_source_is() -> None:
    source = Path(__file__).parents[2] / "src"
    words = [sys.executable, "-m", "karat", "policy", "scan", "--help"]
    result = subprocess.run(words, cwd=source, capture_output=True, text=True, check=True)
    assert "Read op tests without importing them" in result.stdout
