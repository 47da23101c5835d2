"""Runs a recorded program with recorded inputs: a `.pt2` with torch, an `.onnx` with ONNX Runtime.

    karat replay golden_artifacts_….zip --run runner:run

Whoever captured the bundle is trusted here: `torch.export.load` is torch's, not karat's, and a `.pt2` is a program.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

STRUCTURE = "output_structure"
"""A property of every `.onnx` here: what its flat list of outputs means."""


def run(program: Path, inputs: Any) -> Any:
    """What the program gives for these inputs, as the network returned it."""
    runners = {".pt2": run_export, ".onnx": run_onnx}
    return runners[program.suffix](program, inputs)


def run_export(program: Path, inputs: Any) -> Any:
    """Through `torch.export.load`."""
    import torch

    with torch.no_grad():
        return torch.export.load(program).module()(*inputs)


def run_onnx(program: Path, inputs: Any) -> Any:
    """Through ONNX Runtime on the CPU; outputs are torch's, as the network's were."""
    import onnxruntime
    import torch
    from torch.utils._pytree import tree_leaves, tree_unflatten, treespec_loads

    session = onnxruntime.InferenceSession(program, providers=["CPUExecutionProvider"])
    names = [slot.name for slot in session.get_inputs()]
    leaves = [leaf.numpy() for leaf in tree_leaves(inputs)]
    outputs = session.run(None, dict(zip(names, leaves, strict=True)))
    structure = session.get_modelmeta().custom_metadata_map[STRUCTURE]
    return tree_unflatten(list(map(torch.from_numpy, outputs)), treespec_loads(structure))
