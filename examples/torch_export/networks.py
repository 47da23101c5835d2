"""The networks under test, with inputs of the shape each was exported for and of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Two tensors out, one of them the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out, weights = self.attend(x, x, x, need_weights=True)
        return out, weights


class Ranker(nn.Module):
    """Whole numbers and weights for them in, named tensors out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.score = nn.Linear(8, 1)

    def forward(self, query: dict[str, Tensor]) -> dict[str, Tensor]:
        scores = self.score(self.embed(query["items"])).squeeze(-1) * query["weights"]
        return {"scores": scores, "order": scores.argsort(-1, descending=True)}


class Half(nn.Module):
    """bfloat16 throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        self.to(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@dataclass(frozen=True)
class Network:
    """One network, and what to feed it."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]
    """Inputs for a size of the dimension that may vary."""
    dynamic: Callable[[Any], tuple[Any, ...]]
    """`dynamic_shapes` of the export, given that dimension."""
    flows: tuple[str, ...] = ("torch_export", "onnxruntime")


def _query(size: int) -> tuple[dict[str, Tensor]]:
    return ({"items": torch.randint(0, 30, (2, size)), "weights": torch.rand(2, size)},)


NETWORKS: Mapping[str, Network] = {
    "attention": Network(Attention, lambda n: (torch.randn(2, n, 16),), lambda d: ({1: d},)),
    "ranker": Network(Ranker, _query, lambda d: ({"items": {1: d}, "weights": {1: d}},)),
    "half": Network(
        Half, lambda n: (torch.randn(n, 8).to(torch.bfloat16),), lambda d: ({0: d},), flows=("torch_export",)
    ),
}
