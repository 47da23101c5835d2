from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from conftest import framework
from karat.findings import UsageError
from karat.optests import frameworks


def doubled(x: Any) -> Any:
    return np.add(x, x)


def nothing(x: Any) -> Any:
    return x


def test_where_a_function_is_defined() -> None:
    paddle, torch, jax = framework("paddle"), framework("torch"), framework("jax")
    assert frameworks.framework_of(paddle.matmul) == "paddle"
    assert frameworks.framework_of(torch.nn.functional.relu) == "torch"
    assert frameworks.framework_of(jax.nn.softmax) == "jax"


def test_what_a_function_calls() -> None:
    torch = framework("torch")

    def inner(x: Any) -> Any:
        return torch.relu(x)

    assert frameworks.framework_of(doubled) == "numpy"
    assert frameworks.framework_of(partial(doubled, 1)) == "numpy"
    assert frameworks.framework_of(inner) == "torch"


def test_a_backward_of_ones_own_is_numpys() -> None:
    assert frameworks.framework_of(nothing, backward=doubled) == "numpy"


def test_where_nothing_tells_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.optests.frameworks.sys.modules", {})
    with pytest.raises(UsageError, match="cannot tell which framework 'nothing' is of"):
        frameworks.framework_of(nothing)
