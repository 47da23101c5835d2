"""Networks as programs: what the saved file gives must be what eager gave, and what agreed is captured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from networks import NETWORKS
from runner import run
from torch.export import Dim, export

if TYPE_CHECKING:
    from flows import Flow

    from karat.snapshots.golden import Golden

pytestmark = pytest.mark.karat(suite="programs")


@pytest.mark.parametrize("shapes", ["static", "dynamic"])
@pytest.mark.parametrize("name", NETWORKS)
def test_program(name: str, shapes: str, flow: Flow, golden: Golden, tmp_path: Path) -> None:
    network = NETWORKS[name]
    if flow.name not in network.flows:
        pytest.skip(f"{flow.name} has no kernels for it")
    module = network.make().eval()
    dynamic = network.dynamic(Dim("n", min=2, max=16)) if shapes == "dynamic" else None
    given = network.inputs(7 if dynamic else 4)
    with torch.no_grad():
        expected = module(*given)
    program = tmp_path / f"{name}{flow.suffix}"
    flow.save(export(module, network.inputs(4), dynamic_shapes=dynamic), expected, program)
    golden.check(
        actual=run(program, given), expected=expected, inputs=given, program=program, rtol=flow.rtol, atol=flow.atol
    )
