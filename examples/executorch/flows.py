"""Flows: the ways from a network to a `.pte` file that are tested.

The output's structure goes into the program itself, as a constant method: the runtime returns a flat list,
and whoever replays the file later has no network to ask what the list meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.exir import to_edge_transform_and_lower
from runner import STRUCTURE
from torch import nn
from torch.export import export
from torch.utils._pytree import tree_structure, treespec_dumps
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Flow:
    """One way, and how near to eager it must come."""

    name: str
    partitioners: Callable[[], Sequence[Any]]
    rtol: float
    atol: float
    quantized: bool = False


FLOWS: Mapping[str, Flow] = {
    flow.name: flow
    for flow in (
        Flow("portable", list, rtol=1e-5, atol=1e-5),
        Flow("xnnpack", lambda: [XnnpackPartitioner()], rtol=1e-4, atol=1e-4),
        Flow("xnnpack_static_int8", lambda: [XnnpackPartitioner()], rtol=4e-2, atol=1e-1, quantized=True),
    )
}


def lower(
    network: nn.Module, inputs: Inputs, flow: Flow, *, shapes: Any = None, samples: Sequence[Inputs] = ()
) -> bytes:
    """The `.pte` of a network: exported for these inputs, quantized by the samples, lowered, serialised."""
    with torch.no_grad():
        structure = treespec_dumps(tree_structure(network(*inputs)))
        if flow.quantized:
            network = _quantized(network, inputs, shapes, samples)
        lowered = to_edge_transform_and_lower(
            export(network, inputs, dynamic_shapes=shapes),
            partitioner=flow.partitioners(),
            constant_methods={STRUCTURE: structure},
        )
        return bytes(lowered.to_executorch().buffer)


def _quantized(network: nn.Module, inputs: Inputs, shapes: Any, samples: Sequence[Inputs]) -> nn.Module:
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    observed = prepare_pt2e(export(network, inputs, dynamic_shapes=shapes).module(), quantizer)
    for sample in samples:
        observed(*sample)
    return convert_pt2e(observed)
