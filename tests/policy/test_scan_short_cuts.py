"""Short cuts of the reading: each says what going the whole way says."""

from __future__ import annotations

import ast
import unittest
from pathlib import Path

import msgspec
import pytest

from karat.policy.scan.expressions import Lines, one_line, parse
from karat.policy.scan.facts import ClassFacts, FileFacts
from karat.policy.scan.scanner import ScanOptions, scan
from karat.policy.scan.syntax import facts_of, read
from karat.policy.scan.vocabulary import is_test

FILES = [
    *sorted(Path(unittest.__file__).parent.glob("*.py")), *sorted(Path(ast.__file__).parent.glob("c*.py")),
]  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_expression_on_one_line_is_as_python_writes_it(path: Path) -> None:
    expressions = [n for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, ast.expr)]
    said = [(node, one_line(node)) for node in expressions]
    plain = [(node, text) for node, text in said if text is not None]
    assert [text for _, text in plain] == [ast.unparse(node) for node, _ in plain]
    assert len(plain) >= len(expressions) // 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_methods_that_are_not_gone_through_would_have_said_nothing(path: Path) -> None:
    source = path.read_bytes().replace(b"assertEqual", b"check_grad")
    slow, quick = read(parse(source), "x.py", Lines()), facts_of(source, "x.py")
    assert without_does(quick) == without_does(slow)


def without_does(facts: FileFacts) -> list[ClassFacts]:
    """Whether a method that is no test does anything is never asked."""
    replace = msgspec.structs.replace
    return [
        replace(
            cls, methods=tuple(replace(m, does=is_test(m.name) and m.does) for m in cls.methods)
        )
        for cls in facts.classes
    ]


@pytest.mark.parametrize(
    "body",
    [
        "self.a.b(1)", "x = self.a  # why\n", "return (self.a\n(1))", "return (self.a  # why\n(1))",
        "return (self  # why\n.a(1))", "return self.a\\\n(1)", "me = self\nme.go()", "go(self)", "go(x=self)",
        "x = [self]", "getattr(self, 'go')()", "super().go()", "f = self.go\nf()", "x = self.a[self.b()]",
        "self.exist_check_grad = True", "setattr(self, 'exist_check_gr' + 'ad', 1)", "self.dtype = 'float16'",
        "self.op_type = 'x'", "class A(OpTest): pass", "self.test_x = lambda: 1", "x = f'{self.go()}'",
    ],
)  # fmt: skip
def test_they_lead_past_nothing(body: str) -> None:
    indented = body.replace("\n", "\n        ")
    source = (
        f"class T(OpTest):\n    def go(self, x=1):\n        {indented}\n        return 2\n".encode()
    )
    slow, quick = read(parse(source), "x.py", Lines()), facts_of(source, "x.py")
    assert without_does(quick) == without_does(slow)
    assert quick.bindings == slow.bindings


@pytest.mark.slow
def test_hundreds_of_elifs(tmp_path: Path) -> None:
    cases = "".join(f"        elif self.a == {n}: self.check_grad()\n" for n in range(400))
    around = "".join(f"elif a == {n}:\n    class T{n}(Base): pass\n" for n in range(400))
    (tmp_path / "test_x.py").write_text(
        "from op_test import OpTest\nclass Base(OpTest):\n    def test_check_grad(self):\n"
        f"        if self.a < 0: self.check_grad()\n{cases}        else: self.check_grad()\nif a < 0: pass\n{around}"
    )
    report = scan([str(tmp_path)], ScanOptions(jobs=1))
    assert {row.state for row in report.op_tests} <= {"checked", "conditional"}
    assert len(report.op_tests) == 401


@pytest.mark.parametrize("ends", ["return", "pass"])
@pytest.mark.parametrize("other", ["return", "pass"])
def test_what_comes_after_an_elif(tmp_path: Path, ends: str, other: str) -> None:
    (tmp_path / "test_x.py").write_text(
        "from op_test import OpTest\nclass T(OpTest):\n    def test_check_grad(self):\n"
        f"        if self.a: {ends}\n        elif self.b: {other}\n        else: {other}\n        self.check_grad()\n"
    )
    (row,) = scan([str(tmp_path)], ScanOptions(jobs=1)).op_tests
    expected = {"pass pass": "checked", "return return": "unchecked"}
    assert row.state == expected.get(f"{ends} {other}", "conditional")


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("T = unittest.skip('why')(T)", "not-run"),
        ("T = skip_check_grad_ci(reason='why')(T)", "skipped"),
        ("U = unittest.skip('why')(T)", "unchecked"),
        ("T = wrap('why')(T)", "unchecked"),
        ("if a:\n    T = unittest.skip('why')(T)", "unchecked"),
    ],
)
def test_a_decorator_that_is_called_by_hand(tmp_path: Path, line: str, state: str) -> None:
    (tmp_path / "test_x.py").write_text(
        "from op_test import OpTest, skip_check_grad_ci\nclass T(OpTest):\n"
        f"    def test_check_output(self): self.check_output()\n{line}\n"
    )
    (row,) = scan([str(tmp_path)], ScanOptions(jobs=1)).op_tests
    assert row.state == state
