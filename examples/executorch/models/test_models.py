"""Networks, through every flow: the backend must agree with eager, and what agreed is captured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from flows import lower
from networks import NETWORKS, variable
from runner import run

if TYPE_CHECKING:
    from flows import Flow

    from karat.snapshots.golden import Golden


@pytest.mark.parametrize("shapes", ["static", "dynamic"])
@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, shapes: str, flow: Flow, golden: Golden, tmp_path: Path) -> None:
    network = NETWORKS[name]
    if flow.quantized and not network.quantizable:
        pytest.skip("nothing here to quantize")
    module = network.make().eval()
    made_for, given = network.inputs(4), network.inputs(7 if shapes == "dynamic" else 4)
    program = tmp_path / f"{name}.pte"
    program.write_bytes(
        lower(
            module,
            made_for,
            flow,
            shapes=network.dynamic(variable()) if shapes == "dynamic" else None,
            samples=[given, made_for, network.inputs(4)],
        )
    )
    with torch.no_grad():
        expected = module(*given)
    golden.check(
        actual=run(program, given), expected=expected, inputs=given, program=program, rtol=flow.rtol, atol=flow.atol
    )
