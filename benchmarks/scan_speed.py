"""`karat policy scan` over a synthetic tree of op tests, against parsing every file and against reading it.

The tree is as large test trees are: op tests that inherit across files, classes that factories make, plain API
tests, modules that have nothing to do with any of it. Timed, the best of several, with files in the page cache:

- read: every file's bytes, the floor for whoever must see them;
- ast.parse: every file's syntax tree and nothing else, in one process: the limit for whoever parses all;
- scan, one process, and scan with as many processes as there are cores;
- karat policy scan: the command, from start to exit code.

Run: python benchmarks/scan_speed.py [--files 5000]
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from karat.policy.scan.scanner import ScanOptions, scan

KARAT = Path(sys.executable).with_name("karat")
ROOT = """import unittest


class OpTest(unittest.TestCase):
    def check_grad(self, inputs, outputs, **kwargs):
        raise NotImplementedError
"""
OP_TEST = """import unittest

import numpy as np
from op_test import OpTest, skip_check_grad_ci
{parent_import}


def reference_{n}(x, axis, keepdim):
    shifted = x - np.max(x, axis=axis, keepdims=True)
    total = np.sum(np.exp(shifted), axis=axis, keepdims=keepdim)
    return np.exp(shifted) / total if keepdim else np.log(total)


class TestOp{n}(OpTest):
    def setUp(self):
        self.op_type = "op_{n}"
        self.init_case()
        x = np.random.uniform(0.1, 1.0, self.shape).astype("float64")
        self.inputs = {{"X": x}}
        self.attrs = {{"axis": self.axis, "keepdim": self.keepdim}}
        self.outputs = {{"Out": reference_{n}(x, self.axis, self.keepdim)}}

    def init_case(self):
        self.shape = [10, 12, 3]
        self.axis = -1
        self.keepdim = True

    def test_check_output(self):
        self.check_output(check_pir=True)

    def test_check_grad(self):
        {body}

"""
CASE = """
class TestOp{n}Case{k}({base}):
    def init_case(self):
        self.shape = [{k}, 20, 7]
        self.axis = {k}
        self.keepdim = False
        self.extra = np.arange({k}).reshape(self.shape[:1]).astype("float64") * 2.0 + 1.0

"""
FACTORY = """
def create_fp16_{n}(parent):
    class TestFp16Case(parent):
        def init_dtype(self):
            self.dtype = np.float16

        def test_check_grad(self):
            if core.is_compiled_with_cuda():
                self.check_grad_with_place(core.CUDAPlace(0), ["X"], "Out", max_relative_error=0.02)

    globals()[f"{{parent.__name__}}_fp16"] = TestFp16Case


create_fp16_{n}(TestOp{n})
create_fp16_{n}(TestOp{n}Case1)
"""
PLAIN = """import unittest

import numpy as np
import paddle


class TestApi{n}(unittest.TestCase):
    def setUp(self):
        self.x = np.random.random([4, 5, 6]).astype("float32")
        self.places = [paddle.CPUPlace()]

    def test_static(self):
        for place in self.places:
            with paddle.static.program_guard(paddle.static.Program()):
                x = paddle.static.data("X", [4, 5, 6], "float32")
                out = paddle.nn.functional.softmax(x, axis={n})
                exe = paddle.static.Executor(place)
                res = exe.run(feed={{"X": self.x}}, fetch_list=[out])
            np.testing.assert_allclose(res[0], np.exp(self.x) / np.exp(self.x).sum(), rtol=1e-05)

    def test_errors(self):
        self.assertRaises(TypeError, paddle.nn.functional.softmax, 1)

"""


def write_tree(folder: Path, files: int, rng: random.Random) -> int:
    """About half op tests, a tenth of them children of a class in another file; sizes as large trees have them."""
    (folder / "op_test.py").write_text(ROOT, encoding="utf-8")
    written = 0
    for n in range(files - 1):
        part = folder / f"part_{n % 20}"
        part.mkdir(exist_ok=True)
        text = PLAIN.format(n=n) * rng.randint(2, 12) if n % 2 else op_test_file(n, rng)
        written += (part / f"test_{n}_op.py").write_text(text, encoding="utf-8")
    return written


def op_test_file(n: int, rng: random.Random) -> str:
    body = rng.choice(['self.check_grad(["X"], "Out", check_pir=True)'] * 7 + ["pass"])
    other = n - 40 if n >= 40 and n % 10 == 0 else None
    parent = f"from test_{other}_op import TestOp{other}" if other is not None else ""
    base = f"TestOp{other}" if other is not None else f"TestOp{n}"
    cases = [CASE.format(n=n, k=k, base=base) for k in range(1, rng.randint(3, 14))]
    text = OP_TEST.format(n=n, body=body, parent_import=parent)
    return text + "".join(cases) + FACTORY.format(n=n)


def parse_all(sources: list[bytes]) -> None:
    for source in sources:
        ast.parse(source)


def best(work: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Seconds, and seconds of processors in user mode: those stay the same on a machine that others use as well."""
    times, users = [], []
    for _ in range(repeat):
        begin, used = time.perf_counter(), user()
        work()
        times.append(time.perf_counter() - begin)
        users.append(user() - used)
    return min(times), min(users)


def user() -> float:
    now = os.times()
    return now.user + now.children_user


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--repeat", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_tree(folder, asked.files, random.Random(5))
        paths = sorted(folder.rglob("*.py"))
        sources = [path.read_bytes() for path in paths]
        reading = best(lambda: [path.read_bytes() for path in paths], asked.repeat)
        parsing = best(lambda: parse_all(sources), asked.repeat)
        report = scan([name], ScanOptions(jobs=1))
        alone = best(lambda: scan([name], ScanOptions(jobs=1)), asked.repeat)
        several = best(lambda: scan([name]), asked.repeat)
        command = [str(KARAT), "policy", "scan", name, "-q", "--fail-on", "none"]
        whole = best(lambda: subprocess.run(command, check=True), asked.repeat)
    print(
        f"{len(paths):,} files, {size / 1e6:.1f} MB, {len(report.op_tests):,} op test classes,"
        f" {report.files.parsed:,} files parsed, {report.states}"
    )
    for label, (seconds, used) in (
        ("read", reading),
        ("ast.parse of all, one process", parsing),
        ("scan, one process", alone),
        ("scan, all cores", several),
        ("karat policy scan", whole),
    ):
        ratio = used / parsing[1]
        print(f"{label:<32} {seconds:7.2f} s   {used:7.2f} s user   {ratio:5.2f} × ast.parse")


if __name__ == "__main__":
    main()
