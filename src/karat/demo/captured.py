"""A tiny backend suite, and a machine that gets what it captured.

numpy is all it needs. The phone computes in half precision: a defect that only a replay there finds.
"""

from __future__ import annotations

from collections.abc import Mapping

FILES: Mapping[str, str] = {
    "suite.py": '''\
"""Tests of a backend: each compares with the reference, and what passes is captured."""

import numpy as np

import karat

for name, rows in {"static": 2, "dynamic": 5}.items():
    x = np.linspace(-1, 1, rows * 3, dtype=np.float32).reshape(rows, 3)
    karat.check_and_capture(
        f"test_affine[{name}]",
        actual=x + x + np.float32(0.1),  # what the backend gives
        expected=2 * x + np.float32(0.1),
        inputs=(x,),
        program=b"2.0 0.1",
        suite="models",
        flow="portable",
        directory="captures",
        strict=True,
    )
    print(f"test_affine[{name}] passed, and is captured")
''',
    "phone.py": '''\
"""Runs a program on another machine: one that computes in half precision."""

import numpy as np


def run(program, inputs):
    a, b = map(np.float16, program.read_text().split())
    (x,) = inputs
    return (a * x.astype(np.float16) + b).astype(np.float32)
''',
}
