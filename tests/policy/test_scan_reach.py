"""Ways to write a gradient check, and ways to write one that compares nothing: what the scan makes of each."""

from __future__ import annotations

import itertools
from pathlib import Path
from textwrap import indent

import pytest
from hypothesis import given, strategies as st

from karat.findings import exit_code
from karat.policy.scan.findings import always
from karat.policy.scan.scanner import ScanOptions, ScanReport, lines, scan
from karat.policy.scan.source import negated

HEAD = """import contextlib, functools, unittest
import numpy as np
import pytest
from op_test import OpTest, skip_check_grad_ci
"""
CLASS = "class T(OpTest):\n    def test_check_output(self): self.check_output()\n"
CHECK = "def test_check_grad(self): self.check_grad(['X'], 'Out')\n"


def scanned(folder: Path, text: str) -> ScanReport:
    (folder / "test_x.py").write_text(text, encoding="utf-8")
    compile(text, "test_x.py", "exec")
    return scan([str(folder)], ScanOptions(jobs=1))


def scanned_bytes(folder: Path, source: bytes) -> ScanReport:
    (folder / "test_x.py").write_bytes(source)
    return scan([str(folder)], ScanOptions(jobs=1))


def states(folder: Path, text: str) -> dict[str, str]:
    return {row.name: row.state for row in scanned(folder, text).op_tests}


def with_members(members: str) -> str:
    return HEAD + CLASS + indent(members.strip("\n") + "\n", "    ")


def with_test(body: str) -> str:
    return with_members("def test_check_grad(self):\n" + indent(body, "    "))


@pytest.mark.parametrize(
    "body",
    [
        "f = lambda: self.check_grad()\nf()",
        "check = self.check_grad\ncheck(['X'], 'Out')",
        "functools.partial(self.check_grad, ['X'])('Out')",
        "me = self\nme.check_grad()",
        "s = f'{self.check_grad()}'",
        "[self.check_grad([x], 'Out') for x in 'XY']",
        "def run():\n    self.check_grad()\nrun()",
        "for p in self.places:\n    pass\nelse:\n    self.check_grad()",
        "while self.more:\n    pass\nelse:\n    self.check_grad()",
        "while True:\n    self.check_grad()\n    break",
        "with self.subTest(p=1):\n    self.check_grad()",
        "try:\n    self.check_grad()\nexcept ValueError:\n    pass",
        "try:\n    self.check_grad()\nexcept Exception as e:\n    raise RuntimeError('x') from e",
        "with contextlib.suppress(OSError):\n    self.check_grad()",
        "True and self.check_grad()",
        "super().check_grad()",
        "OpTest.check_grad(self, ['X'], 'Out')",
        "assert self.check_grad()",
        # Whatever the condition, one of the branches checks.
        "if self.x:\n    self.check_grad(['X'], 'Out')\nelse:\n    self.check_grad(['Y'], 'Out')",
        "if a:\n    self.check_grad()\nelif b:\n    self.check_grad()\nelse:\n    self.check_grad()",
        "self.check_grad() if a and f(b) else self.check_grad()",
        "if a and f(b):\n    self.check_grad()\n    return\nself.check_grad()",
    ],
)
def test_checks_that_are_come_to(tmp_path: Path, body: str) -> None:
    report = scanned(tmp_path, with_test(body))
    assert [(row.name, row.state) for row in report.op_tests] == [("T", "checked")]
    assert report.findings == ()


@pytest.mark.parametrize(
    "body",
    [
        "return\nself.check_grad()",
        "raise NotImplementedError\nself.check_grad()",
        "assert False\nself.check_grad()",
        "self.skipTest('x')\nself.check_grad()",
        "raise unittest.SkipTest('x')\nself.check_grad()",
        "print('self.check_grad()')",
        "other.check_grad()",
        "for x in []:\n    self.check_grad()",
        "if 0: self.check_grad()",
        "try:\n    self.check_grad()\nexcept AssertionError:\n    print('x')",
        "try:\n    self.check_grad()\nexcept:\n    pass",
        "with self.assertRaises(AssertionError):\n    self.check_grad()",
        "with contextlib.suppress(OSError, AssertionError):\n    self.check_grad()",
    ],
)
def test_checks_that_are_never_come_to_or_cannot_fail(tmp_path: Path, body: str) -> None:
    report = scanned(tmp_path, with_test(body))
    assert [(row.name, row.state) for row in report.op_tests] == [("T", "unchecked")]
    assert exit_code(report.findings) == 1


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        ("match self.x:\n    case 'cpu': self.check_grad()", "self.x"),
        ("if a:\n    self.check_grad()\nelif b:\n    self.check_grad()", "a"),
    ],
)
def test_checks_under_a_condition(tmp_path: Path, body: str, condition: str) -> None:
    report = scanned(tmp_path, with_test(body))
    assert [(row.name, row.state) for row in report.op_tests] == [("T", "conditional")]
    (found,) = report.findings
    assert f"only where {condition};" in found.message


@pytest.mark.parametrize(
    ("members", "state"),
    [
        (f"@unittest.expectedFailure\n{CHECK}", "unchecked"),
        (f"@pytest.mark.xfail\n{CHECK}", "unchecked"),
        (f"@pytest.mark.xfail(reason='later')\n{CHECK}", "unchecked"),
        (f"@pytest.mark.xfail(cuda, reason='later')\n{CHECK}", "conditional"),
        (f"{CHECK}del test_check_grad", "unchecked"),
        (f"{CHECK}def test_check_grad(self): pass", "unchecked"),
        (f"def test_check_grad(self): pass\n{CHECK}", "checked"),
        (f"if cuda:\n    def test_check_grad(self): pass\nelse:\n    {CHECK}", "conditional"),
        (f"while x:\n    pass\nelse:\n    {CHECK}", "checked"),
        ("test_check_grad = lambda self: self.check_grad()", "checked"),
        ("test_check_grad = lambda self: None", "unchecked"),
        ("def tearDown(self): self.check_grad()", "checked"),
        ("def runTest(self): self.check_grad()", "checked"),
    ],
)
def test_what_a_class_body_makes_of_a_check(tmp_path: Path, members: str, state: str) -> None:
    assert states(tmp_path, with_members(members)) == {"T": state}


@pytest.mark.parametrize(
    ("after", "state"),
    [
        ("del T.test_check_grad", "unchecked"),
        ("T.test_check_grad = None", "unchecked"),
        ("T.test_check_grad = lambda self: self.check_output()", "unchecked"),
        ("T.test_check_grad = lambda self: self.check_grad()", "checked"),
        ("T.__test__ = False", "abstract"),
        ("U.test_check_grad = None", "checked"),
    ],
)
def test_a_class_that_is_changed_after_its_statement(tmp_path: Path, after: str, state: str) -> None:
    assert states(tmp_path, f"{with_members(CHECK)}{after}\n") == {"T": state}


PARENT = f"{HEAD}class P(OpTest):\n    def test_o(self): self.check_output()\n"
FACTORY = "def make(parent, name='x'):\n    class F(parent): pass\n    globals()[name] = F\n    return F\n"


@pytest.mark.parametrize(
    "calls",
    [
        "make(P)",
        "X = make(P)",
        "registry['x'] = make(P)",
        "X, Y = make(P), 1",
        "CASES = [make(P)]",
        "for p, n in [(P, 'a'), (P, 'b')]: make(p, n)",
        "for n, p in zip('ab', [P, P]): make(p, n)",
        "CASES = {'a': P}\nfor n, p in CASES.items(): make(p, n)",
        "def all_of(p): return make(p)\nX = all_of(P)",
        "def other(parent=P): return make(parent)\nother()",
    ],
)
def test_ways_to_call_a_factory(tmp_path: Path, calls: str) -> None:
    assert states(tmp_path, f"{PARENT}{FACTORY}{calls}\n") == {"P": "unchecked", "F[P]": "unchecked"}


def factory(check: str, name: str = "F") -> str:
    return f"def make(parent):\n    class {name}(parent):\n        def test_check_grad(self): {check}\n    globals()[str(id({name}))] = {name}\n"


def test_of_factories_with_one_name_each_call_means_the_one_above_it(tmp_path: Path) -> None:
    text = f"{PARENT}{factory('pass')}make(P)\n{factory('self.check_grad()', 'G')}make(P)\n"
    assert states(tmp_path, text) == {"P": "unchecked", "F[P]": "unchecked", "G[P]": "checked"}


def test_a_factory_makes_one_class_for_each_call(tmp_path: Path) -> None:
    makes = "def make(parent, grad_check=True):\n    class F(parent):\n        def test_check_grad(self):\n"
    makes += "            if grad_check: self.check_grad()\n    globals()[str(id(F))] = F\n"
    (tmp_path / "test_x.py").write_text(f"{PARENT}{makes}make(P)\nmake(P, grad_check=False)\n")
    rows = [row for row in scan([str(tmp_path)], ScanOptions(jobs=1)).op_tests if row.name == "F[P]"]
    assert sorted(row.state for row in rows) == ["checked", "unchecked"]


@pytest.mark.parametrize("check", ["pass", "self.check_grad()"])
def test_a_factory_of_a_class_body(tmp_path: Path, check: str) -> None:
    inside = factory(check).replace("\n", "\n    ")
    other = factory("self.check_output()")
    text = f"{PARENT}{other}class Group:\n    {inside}\n    kept = make(P)\n"
    assert states(tmp_path, text) == {"P": "unchecked", "F[P]": "unchecked" if check == "pass" else "checked"}


@pytest.mark.parametrize("base", ["BASES['a']", "LIST[0]", "*LIST", "importlib.import_module('op_test').OpTest"])
def test_ways_to_name_a_base(tmp_path: Path, base: str) -> None:
    head = f"import importlib, op_test\n{HEAD}BASES = {{'a': OpTest}}\nLIST = [OpTest]\n"
    text = f"{head}class T({base}):\n    def test_o(self): self.check_output()\n"
    if base.startswith("importlib"):
        text = text.replace(base, "module.OpTest").replace(
            "class", "module = importlib.import_module('op_test')\nclass"
        )
    assert states(tmp_path, text) == {"T": "unchecked"}


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([{"a"}, {"not a"}], True),
        ([{"a", "b"}, {"a", "not b"}, {"not a"}], True),
        ([{"a", "b"}, {"a", "not b"}], False),
        ([{"a"}, {"b"}], False),
        ([{"a", "b"}, {"not a", "not b"}], False),
        ([set()], True),
        ([], False),
    ],
)
def test_sets_of_conditions_of_which_one_always_holds(sets: list[set[str]], *, expected: bool) -> None:
    assert always(frozenset(each) for each in sets) is expected


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.booleans()).map(
            lambda d: frozenset(name if holds else negated(name) for name, holds in d.items())
        ),
        max_size=8,
    )
)
def test_what_always_holds_holds_in_every_case(sets: list[frozenset[str]]) -> None:
    cases = [
        {name if holds else negated(name) for name, holds in zip("abc", values, strict=True)}
        for values in itertools.product([True, False], repeat=3)
    ]
    if always(sets):
        assert all(any(each <= case for each in sets) for case in cases)


def test_helpers_that_all_call_each_other_are_followed_once(tmp_path: Path) -> None:
    """Fourteen helpers can be gone through in billions of orders."""
    calls = "; ".join(f"self.h{n}()" for n in range(14))
    helpers = "\n".join(f"def h{n}(self): {calls}" for n in range(14))
    members = f"def test_check_grad(self): self.h0()\n{helpers}"
    assert states(tmp_path, with_members(members)) == {"T": "unchecked"}
    checked = members.replace("def h7(self): ", "def h7(self): self.check_grad(); ")
    assert states(tmp_path, with_members(checked)) == {"T": "checked"}


def test_a_line_of_hundreds_of_classes_is_followed_to_its_end(tmp_path: Path) -> None:
    for n in range(300):
        (tmp_path / f"m{n:03}.py").write_text(f"from m{n + 1:03} import C\nclass C(C): pass\n")
    (tmp_path / "m300.py").write_text(f"{HEAD}{CLASS.replace('T', 'C', 1)}")
    report = scan([str(tmp_path)], ScanOptions(jobs=1))
    assert {row.state for row in report.op_tests} == {"unchecked"}
    assert len(report.op_tests) == 301


def test_names_that_are_handed_on_by_many_modules(tmp_path: Path) -> None:
    for n in range(30):
        (tmp_path / f"m{n}.py").write_text(f"from m{n + 1} import *\n")
    (tmp_path / "m30.py").write_text("from op_test import OpTest as Start\nfrom m0 import *\n")
    text = CLASS.replace("OpTest", "Start")
    assert states(tmp_path, f"from m0 import *\n{text}") == {"T": "unchecked"}


def test_names_that_are_bound_again_and_again_are_followed_once(tmp_path: Path) -> None:
    """Each line doubles the ways that lead to the first."""
    lines = "".join("    x = f(x, y)\n    y = f(y, x)\n" for _ in range(60))
    layers = f"def f(a, b): return a or b\ndef make(x, y):\n{lines}    class F(x): pass\n    return F\n"
    assert states(tmp_path, f"{PARENT}{layers}Y = make(P, P)\n")["P"] == "unchecked"


def test_a_function_that_calls_itself_twice_is_followed_once(tmp_path: Path) -> None:
    """Each of its returns leads to both again."""
    function = "def f(a):\n    if a: return f(a)\n    return f(a) or a\n"
    assert states(tmp_path, f"{PARENT}{function}class T(f(P)): pass\n") == {"P": "unchecked", "T": "unchecked"}


def test_a_factory_that_wraps_its_parent_first(tmp_path: Path) -> None:
    factory = "def wrap(one): return one\ndef make(parent):\n    parent = wrap(parent)\n    class F(parent): pass\n"
    assert states(tmp_path, f"{PARENT}{factory}make(P)\n") == {"P": "unchecked", "F[P]": "unchecked"}


def test_a_factory_in_a_file_that_names_nothing_of_op_tests(tmp_path: Path) -> None:
    (tmp_path / "makers.py").write_text(FACTORY)
    (tmp_path / "other.py").write_text("import makers, op_helpers\nclass X(makers.Y): pass\n")
    found = states(tmp_path, f"{PARENT}from makers import make\nmake(P)\n")
    assert found == {"P": "unchecked", "F[P]": "unchecked"}


def test_a_file_that_is_no_python_is_not_called_a_golden(tmp_path: Path) -> None:
    told = list(lines(scanned_bytes(tmp_path, b"class OpTest(")))
    assert "the file cannot be understood as Python" in str(told)
    assert "golden" not in str(told)
