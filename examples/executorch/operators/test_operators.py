"""Single operators: many, quick, and not worth keeping; karat.toml captures the suite `models` alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from flows import lower
from runner import run
from torch import Tensor, nn

if TYPE_CHECKING:
    from flows import Flow

    from karat.snapshots.golden import Golden

OPERATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "maximum": torch.maximum,
    "sigmoid_of_product": lambda x, y: torch.sigmoid(x * y),
}


class Operator(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.function(x, y)


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str, flow: Flow, golden: Golden, tmp_path: Path) -> None:
    if flow.quantized:
        pytest.skip("operators are tested in floating point")
    inputs = (torch.randn(3, 5), torch.randn(3, 5))
    program = tmp_path / f"{name}.pte"
    program.write_bytes(lower(Operator(OPERATORS[name]), inputs, flow))
    golden.check(
        actual=run(program, inputs),
        expected=OPERATORS[name](*inputs),
        inputs=inputs,
        program=program,
        rtol=flow.rtol,
        atol=flow.atol,
    )
