"""Catalogues: what a module has to have, and what is said where it has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from karat.findings import CannotVerify, UsageError
from karat.ops.catalogue import load

SPECS = """
import numpy as np
import karat

def cube(x):
    return x**3

def backward(inputs, outputs, cotangents):
    return (3 * inputs[0] ** 2 * cotangents[0],)

SPECS = [
    karat.OpSpec(
        op="cube",
        fn=cube,
        backward=backward,
        samples=lambda dtype, device, rng: [karat.OpSample(inputs={"x": rng.standard_normal(3)}, name="plain")],
    )
]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"catalogue_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(SPECS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_the_specs_of_a_module_are_a_catalogue(module: str) -> None:
    found = load(module)
    (sample,) = found["cube"].samples(3)
    (again,) = found["cube"].samples(3)
    (other,) = found["cube"].samples(4)
    assert (list(found), found["cube"].framework, sample.description) == (["cube"], "numpy", "plain")
    assert sample.source == f"from {module} import cube as call, backward as backward"
    values = [dict(one.inputs)["x"].tolist() for one in (sample, again, other)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("", UsageError, "expected a function operators"),
        ("1 / 0", CannotVerify, "ZeroDivisionError"),
        ("import nowhere_to_be_found", CannotVerify, "nowhere_to_be_found"),
    ],
)
def test_a_module_that_is_none_is_told(
    text: str, error: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error, match=said):
        load(name)


def test_an_unknown_word_is_told() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'torch'"):
        load("torhc")
