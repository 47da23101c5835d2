"""The scan's reading of a tree against Python's own: the same files, once read and once really imported."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from karat.policy.scan.names import Class, Lineage, Modules, Names, Outside, _merge
from karat.policy.scan.scanner import ScanOptions, scan
from karat.policy.scan.syntax import facts_of


@given(st.lists(st.lists(st.integers(0, 7), max_size=3, unique=True), min_size=1, max_size=8))
def test_the_order_is_pythons_own(shape: list[list[int]]) -> None:
    """Random hierarchies, in which class n may inherit from any class before it."""
    real: list[type] = []
    lines = []
    for number, wanted in enumerate(shape):
        chosen = [w for w in wanted if w < number]
        try:
            made = type(f"C{number}", tuple(real[c] for c in chosen), {})
        except TypeError:  # Python refuses this order
            chosen = chosen[:1]
            made = type(f"C{number}", tuple(real[c] for c in chosen), {})
        real.append(made)
        lines.append(f"class C{number}({', '.join(f'C{c}' for c in chosen)}): pass")
    facts = facts_of("\n".join(lines).encode())
    names = Names(Modules([("m.py", "/m.py")]), lambda _: facts)
    lineage = Lineage(names)
    for number, cls in enumerate(real):
        order = lineage.order(names.instance("m.py", number))
        assert [a.facts.name for a in order if isinstance(a, Class)] == [c.__name__ for c in cls.__mro__[:-1]]


def test_an_order_that_python_refuses_still_has_every_ancestor() -> None:
    x, y = Outside("x"), Outside("y")
    assert _merge([[x, y], [y, x]]) is None
    facts = facts_of(b"class A: pass\nclass B(A): pass\nclass C(A, B): pass\n")
    names = Names(Modules([("m.py", "/m.py")]), lambda _: facts)
    order = Lineage(names).order(names.instance("m.py", 2))
    assert {a.facts.name for a in order if isinstance(a, Class)} == {"A", "B", "C"}


def test_a_circle_of_bases_ends() -> None:
    facts = facts_of(b"class A(B): pass\nclass B(A): pass\nclass B(B): pass\n")
    names = Names(Modules([("m.py", "/m.py")]), lambda _: facts)
    lineage = Lineage(names)
    for number in range(3):
        assert lineage.order(names.instance("m.py", number))


ROOT = """
class OpTest:
    def check_grad(self):
        type(self).ran = True
"""


GROUND = """
class Ground(OpTest):
    def helper(self):
        self.check_grad()

    def test_other(self):
        self.helper()
"""


def random_package(rng: random.Random, folder: Path, *, distant: bool = False) -> list[str]:
    """Modules that derive, rename, re-export, star-import and factor classes of modules before them.

    In a distant one no module but the first spells a root or a check, and three others hand its class on.
    """
    (folder / "__init__.py").write_text("")
    (folder / "op_test.py").write_text(ROOT + GROUND if distant else ROOT)
    sub = folder / "sub"
    sub.mkdir()
    start = "from ..op_test import *" if distant else "from ..op_test import OpTest as Start"
    (sub / "__init__.py").write_text(f"{start}\nfrom .. import op_test as tools\n")
    exported = {"op_test": ["OpTest"], "sub": ["Start"]}
    if distant:
        exported = _hops(rng, folder)
    for number in range(rng.randint(3, 9)):
        name = f"m{number}"
        lines, local = _imports(rng, exported)
        for k in range(rng.randint(1, 4)):
            lines += _definition(rng, f"T{number}_{k}", local, QUIET if distant else BODIES)
            local.append(f"T{number}_{k}")
        (folder / f"{name}.py").write_text("\n".join(lines) + "\n")
        exported[name] = [n for n in local if "." not in n]
    return [*exported]


def _hops(rng: random.Random, folder: Path) -> dict[str, list[str]]:
    """Modules that hand a class on without using it, each by the one before it."""
    exported: dict[str, list[str]] = {}
    before, thing = rng.choice([("op_test", "Ground"), ("sub", "Ground"), ("sub", "tools.Ground")])
    for number in range(3):
        head, _, rest = thing.partition(".")
        line, thing = rng.choice(
            [
                (f"from .{before} import *", thing),
                (f"from .{before} import {head}", thing),
                (f"from .{before} import {head} as K{number}", f"K{number}.{rest}".rstrip(".")),
                (f"from . import {before} as through{number}", f"through{number}.{thing}"),
            ]
        )
        before = f"hop{number}"
        (folder / f"{before}.py").write_text(f"{line}\n")
        exported[before] = [thing]
    return {before: [thing]}


def _imports(rng: random.Random, exported: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    lines: list[str] = []
    local: list[str] = []
    for module in rng.sample(sorted(exported), k=min(2, len(exported))):
        thing = rng.choice(exported[module])
        head, dot, rest = thing.partition(".")
        match rng.randrange(5):
            case 0:
                lines.append(f"from .{module} import {head}")
                local.append(thing)
            case 1:
                lines.append(f"from .{module} import (\n    {head} as N{len(lines)},\n)")
                local.append(f"N{len(lines) - 1}{dot}{rest}")
            case 2:
                lines.append(f"from .{module} import *")
                local += exported[module]
            case 3:
                lines.append(f"from . import {module}")
                local.append(f"{module}.{thing}")
            case _:
                lines.append(f"from . import {module} as mod_{module}")
                local.append(f"mod_{module}.{thing}")
    return lines, local


QUIET = (
    "def test_other(self): self.helper()",
    "def test_more(self):\n        super().test_other()",
    "pass",
    "test_other = None",
    "def helper(self): pass",
)
BODIES = (
    "def test_check_grad(self): self.check_grad()",
    "def test_check_grad(self): pass",
    "def test_check_grad(self):\n        super().test_check_grad()",
    "def helper(self): self.check_grad()",
    "def test_other(self): self.helper()",
    "test_check_grad = None",
    "pass",
)


def _definition(rng: random.Random, name: str, local: list[str], bodies: tuple[str, ...]) -> list[str]:
    base = rng.choice([*local, "Plain"])
    base = "object" if base == "Plain" else base
    body = rng.choice(bodies)
    plain = f"class {name}({base}):\n    {body}"
    match rng.randrange(6):
        case 0:
            return [f"{name} = {base}"]
        case 1:
            return [
                f"def make_{name}(parent):\n    class {name}(parent):\n        x = 1\n    return {name}",
                f"{name} = make_{name}({base})",
            ]
        case 2:
            return ["try:\n    import not_there_at_all\nexcept ImportError:\n    " + plain.replace("\n", "\n    ")]
        case 3:
            return [f"if {rng.random()} < 2:\n    " + plain.replace("\n", "\n    ")]
        case _:
            return [plain]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0].startswith("scanned"):
            del sys.modules[name]


def really(package: str, modules: list[str]) -> dict[str, bool]:
    """Class → whether running its tests comes to check_grad, for every op test that Python finds."""
    found = {}
    root: Any = importlib.import_module(f"{package}.op_test").OpTest
    for name in modules:
        module = importlib.import_module(f"{package}.{name}")
        for cls in vars(module).values():
            if not isinstance(cls, type) or not issubclass(cls, root) or cls is root:
                continue
            tests = [n for n in dir(cls) if n.startswith("test") and callable(getattr(cls, n))]
            key = f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"
            if tests:
                found[key] = _runs(cls, tests)
    return found


def _runs(cls: Any, tests: list[str]) -> bool:
    for test in tests:
        cls.ran = False
        try:
            getattr(cls(), test)()
        except (AttributeError, TypeError):
            continue  # super() or self has no such thing: the test fails, and checks nothing
        finally:
            ran, cls.ran = cls.ran, False
        if ran:
            return True
    return False


@pytest.mark.parametrize("distant", [False, True], ids=["near", "distant"])
@pytest.mark.parametrize("seed", range(60))
def test_a_scan_finds_what_importing_finds(seed: int, distant: bool, imported: Path) -> None:  # noqa: FBT001
    rng = random.Random(seed)
    folder = imported / f"scanned{seed}{distant}"
    folder.mkdir()
    modules = ["op_test", *random_package(rng, folder, distant=distant)]
    truth = really(folder.name, modules)
    report = scan([str(folder)], ScanOptions(jobs=1))
    seen = {
        f"{Path(row.path).stem}.{row.name.partition('[')[0].rpartition('.')[2]}": row.state
        for row in report.op_tests
        if row.state != "abstract"
    }
    assert {name: state in {"checked", "conditional"} for name, state in seen.items()} == truth


@pytest.mark.parametrize("distant", [False, True], ids=["near", "distant"])
@pytest.mark.parametrize("seed", range(20))
def test_files_that_were_not_parsed_would_not_have_mattered(seed: int, distant: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parametrised value
    folder = tmp_path / "scanned"
    folder.mkdir()
    random_package(random.Random(seed), folder, distant=distant)
    for number in range(5):
        (folder / f"other{number}.py").write_text("import unittest\n\nclass T(unittest.TestCase): pass\n")
        # It imports the root's file, and spells no name that means an op test there.
        (folder / f"near{number}.py").write_text("from . import op_test\n\nclass T(op_test.Other): pass\n")
    quick = scan([str(folder)], ScanOptions(jobs=1))
    # Every file has a class or an import: these words as names of bases make all of them matter.
    slow = scan([str(folder)], ScanOptions(jobs=1, base_classes=("class", "import")))
    assert quick.files.parsed < slow.files.parsed
    assert (quick.op_tests, quick.findings) == (slow.op_tests, slow.findings)


def test_a_chain_that_is_too_long_does_not_hide_its_beginning(tmp_path: Path) -> None:
    chain = "".join(f"A{n} = A{n - 1}\n" for n in range(1, 100))
    short = "".join(f"class T{n}(A{n}):\n    def test_x(self): pass\n" for n in range(30, 50))
    (tmp_path / "test_x.py").write_text(
        f"from op_test import OpTest\nA0 = OpTest\n{chain}class T99(A99):\n    def test_x(self): pass\n{short}"
    )
    found = {row.name for row in scan([str(tmp_path)], ScanOptions(jobs=1)).op_tests}
    assert found >= {f"T{n}" for n in range(30, 50)}
