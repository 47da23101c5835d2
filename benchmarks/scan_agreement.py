"""`karat policy scan` against a count that shares nothing with it: the same files, imported and run.

Each file is imported for real, three times: on a machine without accelerators, and on ones that claim to have CUDA or
XPU. The `op_test` that it finds is one whose every gradient check fails. An op test class that still passes checks no
gradient there, whatever it looks like; one that fails in every world is checked, in some of them conditional. What
breaks down before a check (a kernel that is missing, data from elsewhere) is left out, and counted.

The tree is a folder of Paddle's op tests (`test/legacy_test`; Paddle itself must be installed then), or is generated in
their manner: factories, some of the same name, some called in class bodies; parents in other files; skips; conditions.

Run: python benchmarks/scan_agreement.py [TREE] [--files 300] [--seed 5] [-v]
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import importlib
import inspect
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import types
import unittest
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from karat.policy.scan.scanner import ScanOptions, scan

Key = tuple[str, int, str]
"""File, line and name of a class statement, or of the call that made a factory make it."""
WORLDS = ("cpu", "cuda", "xpu")


class PlantedFailure(AssertionError):  # noqa: N818 - one that is wanted
    """What every gradient check comes to."""


# -- the count: one process per world ----------------------------------------------------------------


def run_world(tree: Path, world: str) -> dict[str, Any]:
    """Every op test class of the tree with whether it fails (True), passes (False), or broke before a check (None)."""
    files = sorted(path for path in tree.rglob("*.py") if not path.stem.endswith("op_test"))
    sys.path[:0] = sorted({str(path.parent) for path in files})
    root = stand_ins(world, real=any(b"import paddle" in path.read_bytes() for path in files))
    built: dict[type, tuple[str, int, str]] = {}
    watch_classes(built)
    held: dict[type, None] = {}
    lost = []
    for path in files:
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                module = importlib.import_module(path.stem)
        except BaseException as error:  # noqa: BLE001 - whatever a stranger's file raises
            lost.append(f"{path.name}: {type(error).__name__}: {error}")
            continue
        held.update(
            dict.fromkeys(one for one in vars(module).values() if isinstance(one, type) and issubclass(one, root))
        )
    classes = []
    for cls in held:
        if cls in built and unittest.defaultTestLoader.getTestCaseNames(cls):
            where, line, name = built[cls]
            if "<locals>" in name:
                bases = [
                    built[base][2].rpartition(".")[2] if base in built else base.__name__ for base in cls.__bases__
                ]
                name = f"{name.rpartition('.')[2]}[{', '.join(bases)}]"
            classes.append([where, line, name, fails(cls)])
    return {"classes": classes, "lost": lost}


def watch_classes(built: dict[type, tuple[str, int, str]]) -> None:
    """Remember where a class was made, by the line of a module or class body, and its name, which factories change."""
    usual: Callable[..., type] = builtins.__build_class__

    def build(body: types.FunctionType, name: str, /, *bases: Any, **options: Any) -> type:
        made = usual(body, name, *bases, **options)
        frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001 - where the statement stands
        while frame is not None and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function, no module or class body
            frame = frame.f_back
        if frame is not None:
            path, inside = frame.f_code.co_filename, body.__code__
            line = (
                frame.f_lineno if "<locals>" in body.__qualname__ else class_lines(path).get(inside.co_firstlineno, 0)
            )
            built[made] = (path, line, body.__qualname__)
        return made

    builtins.__build_class__ = build  # type: ignore[assignment]


@cache
def class_lines(path: str) -> dict[int, int]:
    """The line of a class's first decorator → that of its statement."""
    if not path.endswith(".py"):
        return {}
    nodes = [node for node in ast.walk(ast.parse(Path(path).read_bytes())) if isinstance(node, ast.ClassDef)]
    return {min([node.lineno, *(one.lineno for one in node.decorator_list)]): node.lineno for node in nodes}


def fails(cls: type) -> bool | None:
    result = unittest.TestResult()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        unittest.defaultTestLoader.loadTestsFromTestCase(cls).run(result)
    told = [*result.failures, *result.errors]
    if any(PlantedFailure.__name__ in text for _, text in told):
        return True
    return None if any("grad" in test.id() for test, _ in told) else False


def stand_ins(world: str, *, real: bool) -> type:
    """Put an `op_test` in place whose gradient checks fail, and let Paddle claim the devices of the world."""

    class OpTest(unittest.TestCase):
        def check_grad(self, *_args: Any, **_kwargs: Any) -> None:
            raise PlantedFailure

        check_grad_with_place = check_grad

        def __getattr__(self, name: str) -> Any:
            if name.startswith(("check_output", "infer_", "is_", "np_")):
                return lambda *args, **_kwargs: args[0] if args else None
            raise AttributeError(name)

        np_dtype_to_base_dtype = np_dtype_to_fluid_dtype = staticmethod(lambda value: value)

    from karat.optests import original

    sys.modules["test.legacy_test"] = types.ModuleType("test.legacy_test")
    for name in ("op_test", "eager_op_test", "test.legacy_test.op_test"):
        made = sys.modules[name] = types.ModuleType(name)
        vars(made).update({one: getattr(original, one) for one in original.__all__})
        mark: Callable[..., Any] = lambda *_args, **_kwargs: lambda cls: cls  # noqa: E731
        vars(made).update(OpTest=OpTest, skip_check_grad_ci=mark, skip_check_inplace_ci=mark)
    os.environ["WORLD"] = world
    if real:
        import paddle

        for module in (paddle, paddle.base, paddle.base.core, paddle.device):
            for name in dir(module):
                if name.startswith("is_compiled_with_"):
                    setattr(module, name, lambda *_args, kind=name[17:]: world in {kind, kind.replace("dnn", "da")})
                elif name.endswith("float16_supported"):
                    setattr(module, name, lambda *_args: world != "cpu")
                elif name in {"CUDAPlace", "XPUPlace"} and world != "cpu":
                    setattr(module, name, lambda number=0: f"{world}:{number}")
    return OpTest


# -- what both say -----------------------------------------------------------------------------------


def counted(tree: Path) -> tuple[dict[Key, set[str]], list[str]]:
    """The state of every class by running it, and the files that could not be imported."""
    answers: dict[Key, dict[str, set[bool | None]]] = {}
    lost: set[str] = set()
    for world in WORLDS:
        command = [sys.executable, __file__, str(tree), "--world", world]
        ran = subprocess.run([command[0], "-W", "ignore", *command[1:]], check=True, stdout=subprocess.PIPE, text=True)
        told = json.loads(ran.stdout.splitlines()[-1])
        lost |= set(told["lost"])
        for path, line, name, answer in told["classes"]:
            answers.setdefault((path, line, name), {}).setdefault(world, set()).add(answer)
    states: dict[Key, set[str]] = {}
    for key, by_world in answers.items():
        found = set().union(*by_world.values())
        if True in found:
            states[key] = {"checked" if found == {True} and len(by_world) == len(WORLDS) else "conditional"}
        else:
            states[key] = {"unknown" if None in found else "unchecked"}
    return states, sorted(lost)


def scanned(tree: Path) -> dict[Key, set[str]]:
    """The state of every class by the scan."""
    states: dict[Key, set[str]] = {}
    for row in scan([str(tree)], ScanOptions(jobs=1)).op_tests:
        if row.state != "abstract":
            name = row.name if "[" in row.name else row.name.rpartition("<locals>.")[2]
            states.setdefault((row.path, row.line, name), set()).add(row.state)
    for key, found in states.items():
        states[key] = {state if state in {"checked", "conditional", "not-run"} else "unchecked" for state in found}
    return states


def compare(tree: Path) -> tuple[Counter[str], list[str]]:
    """How many classes both put into the same state, and the others in words."""
    (truth, lost), said = counted(tree), scanned(tree)
    told: Counter[str] = Counter()
    differing = [f"not imported: {one}" for one in lost]
    away = {one.partition(":")[0] for one in lost}
    for key in sorted({*truth, *said}):
        real, read = truth.get(key, {"absent"}), said.get(key, {"absent"})
        if real == {"unknown"} or (real == {"absent"} and Path(key[0]).name in away):
            told["unknown"] += 1
            continue
        if "not-run" in read:  # skipped as a whole, or its name is bound again
            read = real & {"unchecked", "absent"} or read
        told["classes"] += 1
        told["same"] += real == read
        told["seen"] += ({"unchecked", "absent"} & real) == ({"unchecked", "absent"} & read)
        if real != read:
            differing.append(f"{key[0]}:{key[1]}: {key[2]}: run: {'/'.join(real)}, scan: {'/'.join(read)}")
    return told, differing


# -- a tree in the manner of Paddle's ----------------------------------------------------------------

CORE = """import os


def is_compiled_with_cuda():
    return os.environ["WORLD"] == "cuda"


def CUDAPlace(number):
    return number
"""
CHECKS = (
    'self.check_grad(["X"], "Out", check_pir=True)',
    'self.check_grad(["X"], "Out")',
    "pass",
    "self.helper()",
    'if core.is_compiled_with_cuda():\n            self.check_grad_with_place(core.CUDAPlace(0), ["X"], "Out")',
    'if self.dtype == np.float16:\n            return\n        self.check_grad(["X"], "Out")',
    "super().test_check_grad()",
    'if not self.is_test:\n            self.check_grad(["X"], "Out")',
    'if core.is_compiled_with_cuda() and self.kind != "max":\n            self.check_grad()\n        elif self.kind != "max":\n            self.check_grad()',
    'try:\n            self.check_grad(["X"], "Out")\n        except AssertionError:\n            pass',
)
DECORATORS = (
    "",
    "",
    "",
    "",
    '@skip_check_grad_ci(reason="[skip shape check] only a test of broadcasting")\n',
    '@unittest.skipIf(not core.is_compiled_with_cuda(), "no CUDA")\n',
    '@unittest.skip("slow")\n',
)


def op_test_file(n: int, rng: random.Random) -> str:
    lines = [
        "import unittest",
        "import numpy as np",
        "import core",
        "from op_test import OpTest, skip_check_grad_ci",
        "",
    ]
    if n >= 3 and rng.random() < 0.4:
        other = rng.randrange(n)
        lines.append(f"from test_{other}_op import TestOp{other}")
        base = f"TestOp{other}"
    else:
        base = "OpTest"
    lines.append(class_of(f"TestOp{n}", base, rng, full=True))
    classes = [f"TestOp{n}"]
    for k in range(rng.randint(2, 6)):
        lines.append(rng.choice(DECORATORS) + class_of(f"TestOp{n}Case{k}", rng.choice(classes), rng))
        classes.append(f"TestOp{n}Case{k}")
    for _ in range(rng.randint(1, 4)):  # of one name: each call means the factory that stands above it
        lines.append(factory(n, rng))
        lines += calls(n, classes, rng)
    if rng.random() < 0.3:
        lines.append(class_of(f"TestOp{n}Case0", classes[0], rng))  # bound again: the first one never runs
    if rng.random() < 0.3:
        lines.append(
            f"{rng.choice(classes[1:])}.test_check_grad = {rng.choice(['None', 'lambda self: self.check_grad()'])}"
        )
    if rng.random() < 0.2:
        lines.append(f"del {classes[-1]}")
    return "\n\n".join(lines) + "\n"


def class_of(name: str, base: str, rng: random.Random, *, full: bool = False) -> str:
    body = []
    if full or rng.random() < 0.3:
        dtype = rng.choice(["float64", "float32", "float16"])
        hook = "\n        self.init_case()" if full else ""  # a child that sets up anew says everything itself
        begin = "    def setUp(self):\n        self.op_type = 'relu'\n        self.is_test = False"
        body.append(f"{begin}\n        self.kind = 'avg'\n        self.dtype = np.{dtype}" + hook)
    if full or rng.random() < 0.4:
        settings = ["self.is_test = True", "self.kind = 'max'", "super().init_case()" if base != "OpTest" else "pass"]
        body.append("    def init_case(self):\n        " + ("pass" if full else rng.choice(settings)))
    if full:
        body.append("    def helper(self):\n        " + rng.choice(CHECKS[:3]))
        body.append("    def test_check_output(self):\n        self.check_output()")
    if full or rng.random() < 0.4:
        checks = CHECKS if not full or base != "OpTest" else [one for one in CHECKS if "super" not in one]
        body.append("    def test_check_grad(self):\n        " + rng.choice(checks))
    return f"class {name}({base}):\n" + ("\n\n".join(body) or "    pass")


def factory(n: int, rng: random.Random) -> str:
    inner = class_of("TestFp16Case", "parent", rng).replace("\n", "\n    ")
    if rng.random() < 0.3:
        inner += "\n\n        def test_check_grad(self):\n            if grad_check:\n                self.check_grad()"
    given = rng.choice(["", ", grad_check=True", ", grad_check=False"])
    if "grad_check" in inner and not given:
        given = ", grad_check=True"
    named = rng.choice(['globals()[f"{parent.__name__}_fp16_{len(globals())}"] = TestFp16Case', "return TestFp16Case"])
    return f"def create_{n}(parent{given}):\n    {inner}\n\n    {named}"


def calls(n: int, classes: list[str], rng: random.Random) -> list[str]:
    made = []
    for cls in rng.sample(classes, k=min(2, len(classes))):
        tag = rng.randrange(10**6)
        match rng.randrange(5):
            case 0:
                made.append(f"made_{tag} = create_{n}({cls})")
            case 1:
                made.append(f"for one_{tag} in ({cls},):\n    kept_{tag} = create_{n}(one_{tag})\ndel one_{tag}")
            case 2:
                made.append(f"class Group{tag}:\n    kept = create_{n}({cls})\n\n\nkept_{tag} = Group{tag}.kept")
            case 3:
                inner = factory(n, rng).replace("\n", "\n    ")
                made.append(
                    f"class Group{tag}:\n    {inner}\n\n    kept = create_{n}({cls})\n\n\nkept_{tag} = Group{tag}.kept"
                )
            case _:
                made.append(f"made_{tag} = create_{n}(parent={cls})")
    return made


def write_tree(folder: Path, files: int, seed: int) -> None:
    rng = random.Random(seed)
    (folder / "core.py").write_text(CORE, encoding="utf-8")
    (folder / "op_test.py").write_text("import unittest\n\n\nclass OpTest(unittest.TestCase):\n    pass\n")
    for n in range(files):
        (folder / f"test_{n}_op.py").write_text(op_test_file(n, rng), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tree", nargs="?", type=Path)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--world", choices=WORLDS)
    parser.add_argument("-v", "--verbose", action="store_true")
    asked = parser.parse_args()
    if asked.world:
        print(json.dumps(run_world(asked.tree.resolve(), asked.world)))
        return
    with tempfile.TemporaryDirectory() as made:
        tree = asked.tree.resolve() if asked.tree else Path(made)
        if not asked.tree:
            write_tree(tree, asked.files, asked.seed)
        told, differing = compare(tree)
    for line in differing if asked.verbose else differing[:10]:
        print(line)
    share = {name: told[name] / max(1, told["classes"]) for name in ("seen", "same")}
    print(
        f"{told['classes']:,} op test classes; unchecked or not: {share['seen']:.2%} agree;"
        f" checked, conditional or unchecked: {share['same']:.2%}; {told['unknown']} could not be run"
    )


if __name__ == "__main__":
    main()
