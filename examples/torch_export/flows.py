"""Flows: the two files that an exported network becomes here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from runner import STRUCTURE
from torch.utils._pytree import tree_structure, treespec_dumps


def save_export(exported: Any, outputs: Any, path: Path) -> None:
    """A `.pt2`; it knows the structure of its own outputs."""
    del outputs
    torch.export.save(exported, path)


def save_onnx(exported: Any, outputs: Any, path: Path) -> None:
    """An `.onnx` that carries the structure of its outputs with it."""
    program = torch.onnx.export(exported, dynamo=True, verbose=False)
    program.model.metadata_props[STRUCTURE] = treespec_dumps(tree_structure(outputs))
    program.save(path)


@dataclass(frozen=True)
class Flow:
    """One way from a network to a program file, and how near to eager it must come."""

    name: str
    suffix: str
    save: Callable[[Any, Any, Path], None]
    rtol: float | None = None
    atol: float | None = None


FLOWS: Mapping[str, Flow] = {
    flow.name: flow
    for flow in (
        # No tolerance: karat's own for each dtype.
        Flow("torch_export", ".pt2", save_export),
        Flow("onnxruntime", ".onnx", save_onnx, rtol=1e-4, atol=1e-5),
    )
}
