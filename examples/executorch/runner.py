"""Runs a recorded `.pte` with recorded inputs: the runtime and torch's tensors, no line of the networks.

karat replay golden_artifacts_….zip --run runner:run
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from executorch.runtime import Runtime
from torch.utils._pytree import tree_leaves, tree_unflatten, treespec_loads

STRUCTURE = "output_structure"
"""A method of every program here: what its flat list of outputs means."""


def run(program: Path, inputs: Any) -> Any:
    """What `forward` gives for these inputs, in the structure that the network returned it in."""
    loaded = Runtime.get().load_program(program)
    (structure,) = loaded.load_method(STRUCTURE).execute([])
    outputs = loaded.load_method("forward").execute(tree_leaves(inputs))
    # The runtime's tensors lie in memory of the method, which is gone when this function is.
    return tree_unflatten([output.clone() for output in outputs], treespec_loads(structure))
