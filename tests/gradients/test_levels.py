"""How much a check looks at, and that its report says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework
from karat.findings import UsageError

X = np.linspace(0.1, 2, 12).reshape(3, 4).astype(np.float32)


def sine(**more: Any) -> Any:
    return karat.gradcheck(np.sin, (X,), backward=lambda i, _o, c: np.cos(i[0]) * c[0], op="sine", **more)


def test_the_default_level_says_what_it_looked_at() -> None:
    report = sine()
    assert report.level == "default"
    assert report.looked[:2] == ("reverse mode in float64", "reverse mode in float32")
    assert report.looked[2].endswith(" laws")


def test_quick_checks_the_double_gradient_alone() -> None:
    report = sine(level="quick")
    assert report
    assert (report.level, report.looked, report.properties) == ("quick", ("reverse mode in float64",), ())
    assert str(report).startswith("PASS  sine (numpy, cpu, level quick): ")
    assert "level quick: reverse mode in float64" in report.details()


def test_quick_checks_what_is_named_as_well() -> None:
    report = sine(level="quick", dtypes=("float32",), properties=("linearity",))
    assert report.looked == ("reverse mode in float64", "reverse mode in float32", "1 law")


def test_quick_sees_a_wrong_gradient() -> None:
    assert (
        karat.gradcheck(np.sin, (X,), backward=lambda i, _o, c: 7 * np.cos(i[0]) * c[0], level="quick").verdict
        == "FAIL"
    )


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(UsageError, match="quick, default, deep"):
        sine(level="depp")


def test_points_of_its_own_are_visited_at_level_deep_alone() -> None:
    torch = framework("torch")
    x = torch.randn(2, 3, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    # Its statistics are outputs without a gradient, of which a second order knows nothing.
    report = karat.gradcheck(
        lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5), (x,), order=2
    )
    assert report, report.details()
    assert not any("points" in one or "length" in one for one in report.looked)
