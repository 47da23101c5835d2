from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from karat.policy.gate.project import Walked, walk


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "somelib" / "ops"
    package.mkdir(parents=True)
    (tmp_path / "somelib" / "__init__.py").write_text("")
    write(
        package / "__init__.py",
        """
        import math
        from os.path import join
        from somelib.ops.pointwise import tanh

        print("hello from the import")

        class Module:
            def __call__(self): ...

        def relu(x): ...
        def _private(x): ...
        gelu = lambda x: x
        table = Module()
        CONSTANT = 7
        """,
    )
    write(
        package / "pointwise.py",
        """
        __all__ = ["tanh", "sqrt", "Helper", "missing"]
        from math import sqrt

        class Helper: ...
        def tanh(x): ...
        def unlisted(x): ...
        """,
    )
    write(package / "_internal.py", "raise RuntimeError('nobody imports this')")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.write_text(dedent(text), encoding="utf-8")


def kinds(walked: Walked) -> list[str]:
    return [one.kind for one in walked.findings]


def test_operators_are_public_callables_by_their_shortest_name(project: Path) -> None:
    walked = walk(["somelib.ops"], folder=project)
    assert walked.findings == ()
    assert list(walked.ops.items()) == [
        ("somelib.ops.gelu", ()),
        ("somelib.ops.pointwise.sqrt", ()),
        ("somelib.ops.relu", ()),
        ("somelib.ops.table", ()),
        ("somelib.ops.tanh", ("somelib.ops.pointwise.tanh",)),
    ]
    assert "somelib" not in sys.modules


def test_whatever_can_be_called_is_an_operator_but_what_was_imported(tmp_path: Path) -> None:
    write(
        tmp_path / "oddlib.py",
        """
        import operator
        from collections import OrderedDict
        from functools import cache, partial, reduce
        from random import Random, choice
        from typing import Any, NewType, Optional, Union, cast

        import numpy as np
        from numpy import sin

        Number = Union[int, float]
        Vector = list[float]
        Meters = NewType("Meters", float)
        Alias = OrderedDict

        class Function:
            @classmethod
            def apply(cls, x): ...

        double = partial(operator.mul, 2)
        scaled = np.frompyfunc(lambda x: 2 * x, 1, 1)
        first = operator.itemgetter(0)
        applied = Function.apply
        drawn = Random(7).gauss

        @cache
        def cached(x): ...
        """,
    )
    walked = walk(["oddlib"], folder=tmp_path)
    assert walked.findings == ()
    names = ("applied", "cached", "double", "drawn", "first", "scaled")
    assert tuple(walked.ops) == tuple(f"oddlib.{name}" for name in names)


def test_lazy_modules_are_walked_and_what_they_cannot_give_is_said(tmp_path: Path) -> None:
    write(
        tmp_path / "lazylib.py",
        """
        from functools import partial

        def __dir__():
            return ["broken", *map("op{}".format, range(50))]

        def __getattr__(name):
            if name == "broken":
                raise ImportError("needs a GPU")
            if name.startswith("op"):
                return partial(print, name)
            raise AttributeError(name)
        """,
    )
    walked = walk(["lazylib"], folder=tmp_path)
    assert len(walked.ops) == 50
    assert kinds(walked) == ["cannot-read"]
    assert "lazylib.broken cannot be read: ImportError: needs a GPU" in walked.findings[0].message


def test_globs_leave_some_out(project: Path) -> None:
    walked = walk(["somelib.ops"], folder=project, exclude=["*.table", "somelib.ops.p*"])
    assert tuple(walked.ops) == ("somelib.ops.gelu", "somelib.ops.relu", "somelib.ops.tanh")


def test_no_namespaces_no_process(tmp_path: Path) -> None:
    assert walk([], folder=tmp_path / "not there") == Walked()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import no_such_module_anywhere", "ModuleNotFoundError: No module named 'no_such_mod"),
        ("def f(:", "SyntaxError"),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; print('last words', flush=True); os._exit(7)", "it ended with 7: last words"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it was killed by signal 9"),
        ("CONSTANT = 1", "it has no public callables"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_finding(tmp_path: Path, body: str, said: str) -> None:
    write(tmp_path / "brokenlib.py", body)
    walked = walk(["brokenlib"], folder=tmp_path)
    assert kinds(walked) == ["cannot-read"]
    assert said in walked.findings[0].message
    assert walked.findings[0].next == "python -c 'import brokenlib'"


def test_a_broken_part_does_not_hide_the_others(project: Path) -> None:
    write(project / "somelib" / "ops" / "zbroken.py", "raise ValueError('today')")
    walked = walk(["somelib.ops"], folder=project)
    assert "somelib.ops.relu" in walked.ops
    assert "namespace somelib.ops.zbroken cannot be read: ValueError: today" in walked.findings[0].message


def test_one_that_never_ends_is_called_off(tmp_path: Path) -> None:
    write(tmp_path / "hanging.py", "import threading; threading.Event().wait()")
    walked = walk(["hanging"], folder=tmp_path, seconds=0.5)
    assert "it did not finish within 0.5 s" in walked.findings[0].message
