from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from karat.findings import Finding, Severity, exit_code
from karat.policy.exemptions import parse
from karat.policy.scan.scanner import ScanOptions, ScanReport, scan

CHECK = "    def test_check_grad(self):\n        self.check_grad(['X'], 'Out')\n"
OUTPUT = "    def test_check_output(self):\n        self.check_output()\n"
HEAD = "import unittest\nfrom op_test import OpTest, skip_check_grad_ci\n"


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def scanned(folder: Path, text: str = "", options: ScanOptions | None = None, **files: str) -> ScanReport:
    return scan([str(tree(folder, **({"test_x": text} if text else {}), **files))], options)


def states(report: ScanReport) -> dict[str, str]:
    return {row.name: row.state for row in report.op_tests}


def kinds(report: ScanReport) -> set[tuple[str, str]]:
    return {(f.kind, f.severity.value) for f in report.findings}


def only(report: ScanReport, kind: str) -> Finding:
    (found,) = (f for f in report.findings if f.kind == kind)
    return found


def test_a_checked_test_and_a_plain_one_are_nothing_to_object_to(tmp_path: Path) -> None:
    plain = f"class TestApi(unittest.TestCase):\n{OUTPUT}    def test_check_grad(self): pass\n"
    report = scanned(tmp_path, f"{HEAD}class TestA(OpTest):\n{CHECK}{plain}")
    assert states(report) == {"TestA": "checked"}
    assert (report.findings, exit_code(report.findings)) == ((), 0)


@pytest.mark.parametrize(
    "text",
    [
        "from op_test import OpTest\nclass T(OpTest):\n",
        "from eager_op_test import OpTest\nclass T(OpTest):\n",
        "import op_test\nclass T(op_test.OpTest):\n",
        "import op_test as o\nclass T(o.OpTest):\n",
        "from op_test_xpu import XPUOpTest\nclass T(XPUOpTest):\n",
        "from karat import OpTest as Base\nclass T(Base):\n",
        "from op_test import *\nclass T(OpTest):\n",
        "from tests.op_test import OpTest\nBase = OpTest\nclass T(Base):\n",
        "from op_test import OpTest\nBase: type = OpTest if x else object\nclass T(Base):\n",
        "from op_test import OpTest\nclass T(OpTest[int], unittest.TestCase):\n",
        "import paddle.fluid.tests.op_test\nclass T(paddle.fluid.tests.op_test.OpTest):\n",
        "try:\n    from op_test import OpTest\nexcept ImportError:\n    OpTest = None\nclass T(OpTest):\n",
        "from op_test import OpTest\nimport six\nclass B(OpTest): pass\nclass T(six.with_metaclass(Meta, B)):\n",
        "from op_test import OpTest\ndef make(base):\n    return base\nclass T(make(OpTest)):\n",
        "from op_test import OpTest\nA, B = OpTest, object\nclass T(A):\n",
        "def f():\n    global T\nif x:\n    from op_test import OpTest\nclass T(OpTest):\n",
    ],
)
def test_op_tests_are_known_by_whatever_way_their_base_came(tmp_path: Path, text: str) -> None:
    report = scanned(tmp_path, f"{text}{OUTPUT}")
    assert states(report)["T"] == "unchecked"
    assert only(report, "grad-check-missing").severity is Severity.FAIL
    assert exit_code(report.findings) == 1


@pytest.mark.parametrize(
    "text",
    [
        "class T(unittest.TestCase):\n",
        "from op_test import skip_check_grad_ci\nclass T(TestCase):\n",
        "class OpTestApi:\n",
        "from op_test import OpTest\nOpTest = object\nclass T(OpTest):\n",
    ],
)
def test_what_is_no_op_test_is_left_alone(tmp_path: Path, text: str) -> None:
    report = scanned(tmp_path, f"{text}{OUTPUT}", test_other=f"{HEAD}class A(OpTest):\n{CHECK}")
    assert "T" not in states(report)
    assert report.findings == ()


def test_classes_are_followed_through_packages_without_importing(tmp_path: Path) -> None:
    report = scanned(
        tmp_path,
        pkg__in____init__="from .deep import Renamed\nfrom . import deep as low\n",
        pkg__in__deep="from op_test import OpTest as Start\nclass Renamed(Start):\n    pass\n",
        pkg__in__mixed=f"class Checks:\n{CHECK}",
        one__in__test_a=f"from pkg import Renamed\nclass TestA(Renamed):\n{OUTPUT}",
        one__in__test_b=f"import pkg\nclass TestB(pkg.low.Renamed):\n{OUTPUT}",
        one__in__test_c="from test_a import *\nfrom pkg.mixed import Checks\nclass TestC(Checks, TestA): pass\n",
        one__in__test_d="raise SystemExit('imported')\n",
    )
    assert states(report) == {"Renamed": "abstract", "TestA": "unchecked", "TestB": "unchecked", "TestC": "checked"}
    (row,) = (r for r in report.op_tests if r.name == "TestC")
    assert row.checked_at == f"{tmp_path}/pkg/mixed.py:3"


FACTORY = """
def create_test_fp16_class(parent, grad_check=True, *, extra=None):
    @unittest.skipIf(not core.is_compiled_with_cuda(), "no CUDA")
    class TestFp16Case(parent):
        {body}

    globals()[f"{{parent.__name__}}_fp16"] = TestFp16Case
"""


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ("x = 1", "conditional"),
        ("def test_check_grad(self): pass", "unchecked"),
        ("def test_check_grad(self): self.check_grad_with_place(p, ['X'], 'Out')", "conditional"),
    ],
)
def test_a_factory_makes_an_op_test_of_each_parent(tmp_path: Path, body: str, state: str) -> None:
    classes = f"class TestA(OpTest):\n{CHECK}\nclass TestB(TestA): pass\n"
    calls = "create_test_fp16_class(TestA)\nfor one in [TestB, TestA]:\n    create_test_fp16_class(parent=one)\n"
    report = scanned(tmp_path, HEAD + classes + FACTORY.format(body=body) + calls)
    assert states(report) == {
        "TestA": "checked",
        "TestB": "checked",
        "TestFp16Case[TestA]": state,
        "TestFp16Case[TestB]": state,
    }


def test_factories_of_other_files_and_factories_that_call_factories(tmp_path: Path) -> None:
    report = scanned(
        tmp_path,
        makers=FACTORY.format(body="def test_check_grad(self): pass")
        + "def create_all(base):\n    create_test_fp16_class(base)\n",
        test_x=f"{HEAD}import makers\nclass TestA(OpTest):\n{CHECK}makers.create_all(TestA)\n",
    )
    assert states(report) == {"TestA": "checked", "TestFp16Case[TestA]": "unchecked"}


@pytest.mark.parametrize(
    ("child", "state"),
    [
        ("pass", "checked"),
        ("def test_check_grad(self): pass", "unchecked"),
        ("def test_check_grad(self): super().test_check_grad()", "checked"),
        ("def test_check_grad(self): super(T, self).test_check_grad()", "checked"),
        ("def test_check_grad(self): Parent.test_check_grad(self)", "checked"),
        ("def test_check_grad(self): super().test_nothing()", "unchecked"),
        ("test_check_grad = None", "unchecked"),
        ("def helper(self): pass", "unchecked"),
        ("def check_grad(self, *a): pass", "unchecked"),
        ("def check_grad(self, *a): super().check_grad(*a)", "checked"),
        ("@unittest.skip('slow')\n    def test_check_grad(self): self.check_grad()", "unchecked"),
        ("@unittest.skipIf(c, 'slow')\n    def test_check_grad(self): self.check_grad()", "conditional"),
        ("def test_check_grad(self): gradcheck(self.fn, self.inputs)", "checked"),
        (
            "def test_check_grad(self):\n        try:\n            self.check_grad()\n        except Exception: pass",
            "unchecked",
        ),
        ("__test__ = False", "abstract"),
    ],
)
def test_what_a_child_inherits_counts_unless_it_is_taken_away(tmp_path: Path, child: str, state: str) -> None:
    parent = (
        "class Parent(OpTest):\n    def test_check_grad(self): self.helper()\n    def helper(self): self.check_grad()\n"
    )
    report = scanned(tmp_path, f"{HEAD}{parent}class T(Parent):\n{OUTPUT}    {child}\n")
    assert states(report) == {"Parent": "checked", "T": state}


def test_an_empty_check_is_told_once_and_the_child_that_inherits_it_as_well(tmp_path: Path) -> None:
    text = f"{HEAD}class A(OpTest):\n    def test_check_grad(self):\n        pass\nclass B(A): pass\n"
    report = scanned(tmp_path, text)
    assert (only(report, "check-empty").where, only(report, "check-empty").severity) == ("line 4", Severity.FAIL)
    missing = only(report, "grad-check-missing")
    assert missing.message.startswith("B has no gradient check: test_check_grad of A (")
    assert missing.message.endswith("test_x.py:4) holds only pass")


def test_a_skip_is_not_inherited(tmp_path: Path) -> None:
    skip = '@skip_check_grad_ci(reason="no kernel")\n'
    report = scanned(tmp_path, f"{HEAD}{skip}class A(OpTest):\n{OUTPUT}class B(A): pass\n")
    assert states(report) == {"A": "skipped", "B": "unchecked"}
    assert "skips it, and a skip is not inherited" in only(report, "grad-check-missing").message
    assert only(report, "skip-without-exemption").severity is Severity.WARN


@pytest.mark.parametrize(
    ("entry", "severity", "state"),
    [
        ('op = "relu"\n', None, "exempt"),
        ('op = "relu"\nscope = "A"\n', None, "exempt"),
        ('op = "relu*"\nscope = "*test_x.py::A"\n', None, "exempt"),
        ('op = "gelu"\n', Severity.FAIL, "skipped"),
        ('op = "relu"\nrule = "tolerance"\nmax_relative_error = 0.1\n', Severity.FAIL, "skipped"),
        ('op = "relu"\nexpires = 2020-01-01\n', Severity.FAIL, "skipped"),
        ('op = "relu"\nscope = "input:X"\n', Severity.FAIL, "skipped"),
    ],
)
def test_a_skip_needs_an_exemption_where_there_is_such_a_file(
    tmp_path: Path, entry: str, severity: Severity | None, state: str
) -> None:
    more = 'kind = "special"\nreason = "gives indices only"\nowner = "@alice"\nissue = "https://x.invalid/1"\n'
    if "expires" not in entry:
        more += "expires = 2030-01-01\n"
    exemptions = parse(f"[[exemption]]\n{entry}{more}".encode())
    assert exemptions.findings == ()
    setup = "    def setUp(self):\n        self.op_type = 'relu'\n"
    text = f'{HEAD}@skip_check_grad_ci(reason="no kernel")\nclass A(OpTest):\n{setup}{OUTPUT}'
    report = scanned(tmp_path, text, ScanOptions(exemptions=exemptions, today=date(2026, 1, 1)))
    assert states(report) == {"A": state}
    found = [f.severity for f in report.findings if f.kind == "skip-without-exemption"]
    assert found == ([severity] if severity else [])
    assert exit_code(report.findings) == (1 if severity else 0)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("max_relative_error=0.02", {("tolerance-override", "warn")}),
        ("max_relative_error=0.005", set()),
        ("max_relative_error=self.tol", {("tolerance-override", "warn")}),
        ("numeric_grad_delta=0.5, max_relative_error=1.0", {("tolerance-override", "warn")}),
        ("user_defined_grads=[self.dx]", {("evidence-weak", "warn")}),
        ("user_defined_grads=None, no_grad_set=None", set()),
        ("no_grad_set={'Y'}", {("check-narrowed", "info")}),
    ],
)
def test_what_a_check_is_told_to_overlook_is_reported(
    tmp_path: Path, call: str, expected: set[tuple[str, str]]
) -> None:
    body = f"    def test_check_grad(self):\n        self.check_grad(['X'], 'Out', {call})\n"
    assert kinds(scanned(tmp_path, f"{HEAD}class A(OpTest):\n{body}")) == expected


def test_the_default_tolerance_is_that_of_the_dtype(tmp_path: Path) -> None:
    text = HEAD + "\n".join(
        f"class T{i}(OpTest):\n    def setUp(self): self.dtype = {dtype}\n"
        f"    def test_check_grad(self): self.check_grad(['X'], 'Out', max_relative_error=0.004)\n"
        for i, dtype in enumerate(["np.float64", "np.float32", "'float16'", "np.uint16"])
    )
    report = scanned(tmp_path, text)
    found = sorted(f.message.partition(":")[0] for f in report.findings if f.kind == "tolerance-override")
    assert found == ["T0", "T2"]


@pytest.mark.parametrize("condition", ["core.is_compiled_with_cuda()", "self.dtype != 'int8'"])
def test_a_check_under_a_condition_is_a_note_of_its_own(tmp_path: Path, condition: str) -> None:
    body = f"if {condition}:\n            self.check_grad()"
    text = f"{HEAD}class A(OpTest):\n    def test_check_grad(self):\n        {body}\n"
    report = scanned(tmp_path, text)
    assert kinds(report) == {("check-conditional", "warn")}
    more = "    def test_check_grad_cpu(self):\n        self.check_grad(['X'], 'Out')\n"
    assert kinds(scanned(tmp_path, text + more)) == set()


def test_a_skip_of_unittest_is_inherited(tmp_path: Path) -> None:
    text = f"{HEAD}@unittest.skipIf(not cuda, 'no CUDA')\nclass A(OpTest):\n{CHECK}class B(A): pass\n"
    text += f"@unittest.skip('slow')\nclass C(OpTest):\n{CHECK}class D(C): pass\n"
    assert states(scanned(tmp_path, text)) == {"A": "conditional", "B": "conditional", "C": "not-run", "D": "not-run"}


@pytest.mark.parametrize(
    ("dtype", "condition", "state"),
    [
        ("np.float16", "self.dtype == np.float16", "unchecked"),
        ("np.float32", "self.dtype == np.float16", "checked"),
        ("'float16'", "self.dtype == 'float16'", "unchecked"),
        ("np.uint16", "self.dtype != np.uint16", "checked"),
        ("np.float32", "self.dtype != np.uint16", "unchecked"),
        ("self.pick()", "self.dtype == np.float16", "conditional"),
        ("np.float16", "self.dtype == np.float16 and x", "conditional"),
    ],
)
def test_a_condition_on_a_dtype_that_is_known_is_decided(
    tmp_path: Path, dtype: str, condition: str, state: str
) -> None:
    parent = f"class P(OpTest):\n    def test_check_grad(self):\n        if {condition}:\n            return\n        self.check_grad()\n"
    child = f"class T(P):\n    def init_dtype(self):\n        self.dtype = {dtype}\n"
    report = scanned(tmp_path, f"{HEAD}{parent}{child}")
    assert states(report) == {"P": "conditional", "T": state}


@pytest.mark.parametrize(
    ("set_to", "condition", "state"),
    [
        ("True", "self.flag", "unchecked"),
        ("False", "self.flag", "checked"),
        ("'max'", "self.flag == 'max'", "unchecked"),
        ("'max'", "(cuda() or self.flag == 'max') and not self.other", "unchecked"),
        ("'avg'", "(cuda() or self.flag == 'max') and not self.other", "conditional"),
        ("None", "self.flag is not None", "checked"),
        ("pick()", "self.flag", "conditional"),
        ("False", "self.float16", "conditional"),
        ("True\n        if cuda(): self.flag = False", "self.flag", "conditional"),
        ("False\n    def test_other(self):\n        self.flag = True", "self.flag", "conditional"),
    ],
)
def test_a_condition_on_an_attribute_that_the_class_sets_is_decided(
    tmp_path: Path, set_to: str, condition: str, state: str
) -> None:
    parent = "class P(OpTest):\n    def setUp(self):\n        self.flag = self.other = False\n        self.init()\n"
    parent += (
        f"    def test_check_grad(self):\n        if {condition}:\n            return\n        self.check_grad()\n"
    )
    child = f"class T(P):\n    def init(self):\n        self.flag = {set_to}\n"
    assert states(scanned(tmp_path, f"{HEAD}{parent}{child}"))["T"] == state


@pytest.mark.parametrize(
    ("call", "condition", "state"),
    [
        ("make(P)", "fine and grad_check", "conditional"),
        ("make(P, False)", "fine and grad_check", "unchecked"),
        ("make(P, grad_check=False)", "grad_check", "unchecked"),
        ("make(P, grad_check=True)", "grad_check", "checked"),
        ("make(P)", "grad_check", "checked"),
        ("make(P)", "not grad_check", "unchecked"),
        ("make(P, grad_check=False)", "fine or grad_check", "conditional"),
        ("make(P, grad_check=what)", "grad_check", "conditional"),
    ],
)
def test_a_factory_that_is_told_not_to_check_does_not(tmp_path: Path, call: str, condition: str, state: str) -> None:
    factory = (
        f"def make(parent, grad_check=True):\n    class T(parent):\n        def test_check_grad(self):\n"
        f"            if {condition}:\n                self.check_grad()\n"
    )
    report = scanned(tmp_path, f"{HEAD}class P(OpTest):\n{CHECK}{factory}{call}\n")
    assert states(report) == {"P": "checked", "T[P]": state}


def test_integers_need_no_check(tmp_path: Path) -> None:
    setup = "    def setUp(self):\n        self.dtype = np.int32\n"
    report = scanned(tmp_path, f"{HEAD}class A(OpTest):\n{setup}{OUTPUT}")
    assert (states(report), exit_code(report.findings)) == ({"A": "integer"}, 0)


def test_flags_by_hand_fail_also_from_outside(tmp_path: Path) -> None:
    plain = "class P(unittest.TestCase): pass\nP.exist_check_grad = True\n"
    text = f"{HEAD}class A(OpTest):\n    no_need_check_grad = False\n{CHECK}A.exist_check_grad = True\n{plain}"
    report = scanned(tmp_path, text)
    assert [f.where for f in report.findings] == ["line 4", "line 7"]
    assert kinds(report) == {("flag-by-hand", "fail")}


def test_a_class_whose_name_is_bound_again_never_runs(tmp_path: Path) -> None:
    report = scanned(tmp_path, f"{HEAD}class A(OpTest):\n{CHECK}class A(OpTest):\n{CHECK}")
    assert [row.state for row in report.op_tests] == ["not-run", "checked"]
    assert "never runs: line 6 binds its name again" in only(report, "grad-check-missing").message


def test_classes_that_no_runner_finds_are_bases(tmp_path: Path) -> None:
    hidden = "class Hide:\n    class Base(OpTest):\n        def test_x(self): self.check_output()\n"
    deleted = f"class Gone(OpTest):\n{OUTPUT}class Kept(Gone):\n{CHECK}del Gone\n"
    wrapper = "class W(XPUOpTestWrapper):\n    class Inner(OpTest):\n        def test_x(self): self.check_output()\n"
    report = scanned(tmp_path, HEAD + hidden + deleted + wrapper)
    assert states(report) == {"Hide.Base": "abstract", "Gone": "abstract", "Kept": "checked", "W.Inner": "unchecked"}


def test_bases_that_cannot_be_found_are_said(tmp_path: Path) -> None:
    text = f"{HEAD}from elsewhere import Mixin, MyOpTest, Other\n"
    text += f"class A(Mixin, OpTest):\n{OUTPUT}class B(MyOpTest):\n{OUTPUT}class C(Other):\n{CHECK}class D(pick()):\n{OUTPUT}"
    report = scanned(tmp_path, text)
    assert states(report) == {"A": "unchecked", "B": "unchecked"}
    assert {f.severity for f in report.findings if f.message.startswith("A has no")} == {Severity.WARN}
    assert len([f for f in report.findings if f.kind == "unresolved-base"]) == 2


def test_a_base_class_can_be_named(tmp_path: Path) -> None:
    tree(tmp_path, test_x=f"from lib.testing import Case\nclass A(Case):\n{OUTPUT}")
    assert exit_code(scan([str(tmp_path)]).findings) == 3
    report = scan([str(tmp_path)], ScanOptions(base_classes=("lib.testing.Case",)))
    assert states(report) == {"A": "unchecked"}
