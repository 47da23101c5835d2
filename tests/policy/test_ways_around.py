"""Ways around the gate, each tried: the gate notices it, or `karat policy approvals` shows it to somebody who may approve."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from factories.changed import FILE, look
from factories.commands import karat
from factories.policy_ranges import EXEMPTION, PolicyRange
from factories.pytest_runs import Suite
from factories.repositories import Repository

OPS = '''
"""The operators that the tests below are to be about."""

import numpy as np


def tanh(x):
    return np.tanh(x)


def swish(x):
    return x / (1 + np.exp(-x))


def both(x):
    return x * x, np.sin(x)
'''
TESTS = '''
import numpy as np

import karat
import mylib


def right(inputs, outputs, cotangents):
    return (cotangents[0] * (1 - np.tanh(inputs[0]) ** 2),)


class TestTanh(karat.OpTest):
    """As it should be."""

    framework = "numpy"
    backward = staticmethod(right)
    shape = (3, 4)

    def setUp(self):
        self.op_type, self.python_api = "tanh", mylib.tanh
        x = np.random.rand(*self.shape)
        self.inputs, self.outputs = {"X": x}, {"Out": np.tanh(x)}

    def test_check_grad(self):
        self.check_grad(["X"], "Out")


class TestNoLaws(TestTanh):
    def test_check_grad(self):
        self.check_grad(["X"], "Out", properties=())


class TestOneLaw(TestTanh):
    def test_check_grad(self):
        self.check_grad(["X"], "Out", properties=("linearity",))


class TestAnotherFunction(TestTanh):
    """The op's name, and a function whose gradient is easier to get right."""

    def setUp(self):
        super().setUp()
        self.op_type, self.python_api = "swish", lambda x: np.tanh(x)


class TestOneElement(TestTanh):
    """One element: whatever is summed or turned around in the backward, nothing shows."""

    shape = (1,)

    def setUp(self):
        super().setUp()
        self.op_type = "cosh"


class TestOneOutput(karat.OpTest):
    """The gradient of the second output is wrong, and nobody asks for it."""

    framework = "numpy"

    @staticmethod
    def backward(inputs, outputs, cotangents):
        second = cotangents[1] * 7 if len(cotangents) > 1 else 0
        return (2 * inputs[0] * cotangents[0] + second,)

    def setUp(self):
        self.op_type, self.python_api = "both", mylib.both
        x = np.random.rand(5)
        self.inputs, self.outputs = {"X": x}, {"Out": x * x, "Second": np.sin(x)}

    def test_check_grad(self):
        self.check_grad(["X"], "Out")


class TestBentReference(TestTanh):
    """A reference that agrees with the op at the point, and has the slopes of the wrong backward."""

    @staticmethod
    def backward(inputs, outputs, cotangents):
        return (3 * cotangents[0],)

    def test_check_grad(self):
        at = self.inputs["X"].copy()
        try:
            self.check_grad(["X"], "Out", reference=lambda x: np.tanh(at) + 3 * (x - at))
        except AssertionError:
            pass


def test_plain_right():
    x = np.linspace(-1.0, 1.0, 6)
    karat.gradcheck(mylib.tanh, (x,), op="plain", backward=right).require()


def test_plain_wrong():
    x = np.linspace(-1.0, 1.0, 6)
    assert karat.gradcheck(mylib.tanh, (x,), op="plain_wrong", backward=lambda i, o, c: (2 * c[0],))


def test_plain_one_output():
    x = np.linspace(-1.0, 1.0, 6)
    backward = lambda i, o, c: (2 * i[0] * c[0],)
    karat.gradcheck(mylib.both, (x,), op="plain_both", outputs=["out.0"], backward=backward)
'''
FILE_ = "tests/test_ways.py"


def suite_of(root: Path) -> Suite:
    suite = Suite(root)
    repository = Repository(root)
    suite.write("pytest.ini", "[pytest]\naddopts = -p no:cacheprovider\npythonpath = .\n")
    suite.write(".gitignore", "evidence\n__pycache__\n*.json\n")
    suite.write("karat.toml", '[policy]\nnamespaces = ["mylib"]\n')
    suite.write("mylib.py", OPS)
    suite.write(FILE_, TESTS)
    repository.commit("all of it")
    return suite


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    made = suite_of(tmp_path_factory.mktemp("ways"))
    ran = made.run("--karat-evidence", "evidence")
    assert ran.count("failed") == 1, ran.out
    return made


class Judged(NamedTuple):
    code: int
    report: Any
    out: str


def gate(suite: Suite, *words: str) -> Judged:
    ran = karat("policy", "gate", "evidence", "--json", "gate.json", *words, cwd=suite.root)
    return Judged(ran.code, json.loads((suite.root / "gate.json").read_bytes()), ran.out)


@pytest.fixture(scope="module")
def judged(suite: Suite) -> Judged:
    return gate(suite, "--complete")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "kind", "said"),
    [
        (f"{FILE_}::TestNoLaws", "evidence-weak", "leaves out 16 laws"),
        (f"{FILE_}::TestOneLaw", "evidence-weak", "leaves out 15 laws"),
        (f"{FILE_}::TestOneOutput", "evidence-missing", "for the output Second; it has a gradient, and no check asks"),
        (f"{FILE_}::TestOneElement", "evidence-weak", "only at inputs with a single element"),
        (f"{FILE_}::TestBentReference", "grad-failed", "reference"),
        (f"{FILE_}::test_plain_one_output", "check-narrowed", "no evidence for the output out.1"),
        (f"{FILE_}::test_plain_wrong", "grad-failed", "x → out in float64"),
        (None, "other-function", "cosh by right, tanh.*swish by right, tanh"),
        (
            None,
            "new-op",
            r"mylib.swish: what was checked under its name is another function \(numpy.tanh, test_ways.right\)",
        ),
    ],
)
def test_the_gate_notices(judged: Judged, where: str | None, kind: str, said: str) -> None:
    assert judged.code == 1
    mine = [f for f in judged.report["findings"] if (f["where"], f["kind"]) == (where, kind)]
    assert any(re.search(said, f["message"]) for f in mine), mine
    assert kind == "other-function" or all(f["severity"] != "info" for f in mine)


@pytest.mark.slow
def test_what_is_as_it_should_be_is_not_noticed(judged: Judged) -> None:
    for name in ("TestTanh", "test_plain_right"):
        assert not [f for f in judged.report["findings"] if f["where"] == f"{FILE_}::{name}"]
    assert "mylib.tanh" not in judged.out
    assert "3 other tests with gradient checks, 2 with evidence" in judged.out


def another_commit(suite: Suite) -> None:
    suite.write("notes.md", "another commit, in which nothing of the tests is different")
    Repository(suite.root).commit("later")


def edited(suite: Suite) -> None:
    """A failure becomes a success."""
    (path,) = (suite.root / "evidence").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"verdict":"FAIL"', b'"verdict":"PASS"'))


def shortened(suite: Suite) -> None:
    """The lines of what failed are gone."""
    (path,) = (suite.root / "evidence").glob("*.jsonl")
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(keepends=True) if b"FAIL" not in line))


def cut_off(suite: Suite) -> None:
    """The lines of what failed are gone, and the seal that would tell."""
    shortened(suite)
    (path,) = (suite.root / "evidence").glob("*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def another_source(suite: Suite) -> None:
    """The op was mended for the test run alone, and nobody committed it."""
    suite.write("mylib.py", OPS + "\n\ndef more():\n    ...\n")


def another_test(suite: Suite) -> None:
    suite.write(FILE_, TESTS.replace("(3, 4)", "(4, 3)"))


def no_commit(suite: Suite) -> None:
    """A journal that does not say what was tested."""
    (path,) = (suite.root / "evidence").glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = re.sub(rb',"commit":"\w+"', b"", lines[0])
    last, seal = json.loads(lines[-1]), hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    path.write_bytes(b"".join([*lines[:-1], json.dumps({**last, "seal": seal}).encode() + b"\n"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "kind", "said"),
    [
        (another_commit, "evidence-foreign", "the commit that is judged, found journals of"),
        (no_commit, "evidence-foreign", "found journals of an unknown one"),
        (edited, "evidence-damaged", "it was changed after it was written; nothing in it counts"),
        (shortened, "evidence-damaged", "it was changed after it was written; nothing in it counts"),
        (cut_off, "evidence-damaged", "it has no last line, the seal"),
        (another_source, "evidence-foreign", "expected mylib.py as tested, found other contents"),
        (another_test, "evidence-foreign", f"expected {FILE_} as tested, found other contents"),
    ],
)
def test_the_gate_refuses_evidence_of_something_else(
    tmp_path: Path, suite: Suite, way: Callable[[Suite], None], kind: str, said: str
) -> None:
    shutil.copytree(suite.root, tmp_path / "there", symlinks=True)
    there = Suite.at(tmp_path / "there")
    way(there)
    found = gate(there)
    assert found.code in {1, 3}
    assert [f["message"] for f in found.report["findings"] if f["kind"] == kind and said in f["message"]]


@pytest.mark.slow
def test_evidence_of_another_commit_is_not_verified_whatever_it_says(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    assert suite.run("--karat-evidence", "evidence", "-k", "TestTanh or plain_right").code == 0
    assert gate(suite).code == 0
    another_commit(suite)
    found = gate(suite)
    assert found.code == 3
    assert "gate not verified: " in found.out


def test_evidence_says_what_it_is_of(suite: Suite) -> None:
    (path,) = (suite.root / "evidence").glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    commit = Repository(suite.root).git("rev-parse", "HEAD").strip()
    assert (lines[0]["commit"], lines[0]["python"]) == (commit, platform.python_version())
    (report,) = [one for one in lines if one["type"] == "report" and one["test"].endswith("::TestTanh")]
    assert (report["framework"], report["version"], report["device"]) == ("numpy", np.__version__, "cpu")
    sources = {name: hashlib.sha256((suite.root / name).read_bytes()).hexdigest() for name in ("mylib.py", FILE_)}
    assert report["sources"] == sources
    assert "mylib.tanh" in report["functions"]


APPROVED: dict[str, tuple[Callable[[PolicyRange], object], tuple[str, str, str]]] = {
    "no laws": (
        lambda t: t.edit(FILE, "max_relative_error=0.01", "max_relative_error=0.01, properties=()"),
        ("added", "laws", "properties=()"),
    ),
    "a quick check": (
        lambda t: t.edit(FILE, "max_relative_error=0.01", 'max_relative_error=0.01, level="quick"'),
        ("added", "laws", "level='quick'"),
    ),
    "a reference": (
        lambda t: t.edit(FILE, "max_relative_error=0.01", "max_relative_error=0.01, reference=bent"),
        ("added", "reference", "bent"),
    ),
    "fewer inputs": (
        lambda t: t.edit(FILE, '["X", "Y"]', '["X"]'),
        ("changed", "check", "check_grad(['X'], ['Out', 'Second'])"),
    ),
    "one of two outputs": (
        lambda t: t.edit(FILE, '["Out", "Second"]', '"Out"'),
        ("changed", "check", "check_grad(['X', 'Y'], 'Out')"),
    ),
    "another function": (
        lambda t: t.edit(FILE, "python_api = softmax", "python_api = tanh"),
        ("changed", "function", "tanh"),
    ),
    "another function in a plain test": (
        lambda t: t.edit("tests/test_plain.py", "gradcheck(softmax", "gradcheck(tanh"),
        ("changed", "check", "gradcheck(tanh)"),
    ),
    "__test__ = False": (
        lambda t: t.edit(FILE, "class TestSoftmax(OpTest):", "class TestSoftmax(OpTest):\n    __test__ = False"),
        ("added", "uncollected", "False"),
    ),
    "__test__ from outside": (
        lambda t: t.write(FILE, NEW_TEST + "\n\nTestSoftmax.__test__ = False\n"),
        ("added", "uncollected", "False"),
    ),
    "collect_ignore": (
        lambda t: t.write("tests/conftest.py", 'collect_ignore = ["test_ops.py"]\n'),
        ("added", "uncollected", "['test_ops.py']"),
    ),
    "collect_ignore, later": (
        lambda t: t.write("tests/conftest.py", 'if 1:\n    collect_ignore_glob.append("test_*.py")\n'),
        ("added", "uncollected", "collect_ignore_glob.append('test_*.py')"),
    ),
    "a hook": (
        lambda t: t.write("conftest.py", "def pytest_ignore_collect(collection_path):\n    return True\n"),
        ("added", "uncollected", "hides tests"),
    ),
    "another base class": (
        lambda t: t.edit(FILE, "class TestSoftmax(OpTest)", "class TestSoftmax(TestCase)"),
        ("removed", "base", "OpTest"),
    ),
    "another base class of the base class": (
        lambda t: t.edit(FILE, "class Base(OpTest)", "class Base(TestCase)"),
        ("removed", "base", "OpTest"),
    ),
    "a deleted check": (
        lambda t: t.edit(FILE, 'self.check_grad(["X", "Y"], ["Out", "Second"], max_relative_error=0.01)', "pass"),
        ("removed", "check", "check_grad(['X', 'Y'], ['Out', 'Second'])"),
    ),
    "a deleted test": (
        lambda t: t.write(FILE, NEW_TEST.partition("class TestInherits")[0]),
        ("removed", "base", "Base"),
    ),
    "a deleted plain test": (
        lambda t: (t.root / "tests/test_plain.py").unlink(),
        ("removed", "check", "gradcheck(softmax)"),
    ),
    "an expiry in 9999": (
        lambda t: t.edit("exemptions.toml", "2027-03-31", "9999-12-31"),
        ("changed", "exemption", "until 9999-12-31"),
    ),
}
NEW_TEST = """
from op_test import OpTest


class TestSoftmax(OpTest):
    def setUp(self):
        self.op_type = "softmax"
        self.python_api = softmax

    def test_check_grad(self):
        self.check_grad(["X", "Y"], ["Out", "Second"], max_relative_error=0.01)


class Base(OpTest):
    def setUp(self):
        self.op_type = "relu"


class TestInherits(Base):
    shape = (3, 4)
"""


@pytest.fixture
def tree(tmp_path: Path) -> PolicyRange:
    plain = "def test_plain():\n    karat.gradcheck(softmax, (x,), op='softmax').require()\n"
    files = {"exemptions.toml": EXEMPTION, FILE: NEW_TEST, "tests/test_plain.py": plain}
    return PolicyRange(tmp_path / "mein Prüfstand", **files)


@pytest.mark.parametrize("way", APPROVED)
def test_approvals_shows(tree: PolicyRange, way: str) -> None:
    do, (what, kind, shown) = APPROVED[way]
    do(tree)
    changes, findings = look(tree)
    assert findings == []
    told = [(one.what, one.waiver.kind) for one in changes]
    assert (what, kind) in told, told
    assert any(shown in one.waiver.shown for one in changes if one.waiver.kind == kind)


@pytest.mark.parametrize(
    "what",
    [
        lambda t: t.edit(FILE, "TestSoftmax", "TestSoftmaxRenamed"),
        lambda t: t.edit(FILE, "TestInherits", "TestInheritsMore"),
        lambda t: (t.root / FILE).rename(t.root / "tests/test_moved.py"),
        lambda t: t.edit(FILE, '["X", "Y"]', '["X", "Y", "Z"]'),
        lambda t: t.edit(FILE, "OpTest):\n    def", "OpTest):\n    __test__ = True\n\n    def"),
    ],
    ids=["renamed", "renamed without an op", "moved", "stricter", "collected"],
)
def test_approvals_does_not_show(tree: PolicyRange, what: Callable[[PolicyRange], object]) -> None:
    what(tree)
    changes, findings = look(tree)
    assert findings == []
    assert [one for one in changes if one.waiver.guard or one.waiver.kind == "uncollected"] == []
