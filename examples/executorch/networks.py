"""The networks under test: small, of several kinds, each with inputs of the shape it was made for and of another.

A network is made anew for every test, from one seed, so that no test sees what another did to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.BatchNorm2d(8),
            nn.ReLU(),
        )
        self.classify = nn.Linear(8, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.classify(self.features(image).mean((2, 3)))


class Block(nn.Module):
    """A transformer's block: attention by hand, layer norm, a residual around each half."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.feed = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x: Tensor) -> Tensor:
        seen = self.before(x)
        scores = self.query(seen) @ self.key(seen).transpose(-1, -2) / 4
        x = x + scores.softmax(-1) @ self.value(seen)
        return x + self.feed(self.between(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 12, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, (hidden, cell) = self.lstm(x)
        return out, (hidden, cell)


class Tagger(nn.Module):
    """Whole numbers in, and beside them a mask and a plain Python number; named tensors out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.score = nn.Linear(16, 5)

    def forward(self, tokens: Tensor, mask: Tensor, scale: float) -> dict[str, Tensor]:
        vectors = self.embed(tokens) * mask.unsqueeze(-1).to(torch.float32) * scale
        logits = self.score(vectors)
        return {"logits": logits, "tags": logits.argmax(-1), "kept": mask.sum(-1)}


@dataclass(frozen=True)
class Network:
    """One network, and what to feed it."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]
    """Inputs for a size of the dimension that may vary."""
    dynamic: Callable[[Any], tuple[Any, ...]]
    """`dynamic_shapes` of the export, given that dimension."""
    quantizable: bool = False
    """Worth a quantized flow: not where the quantizer finds nothing, or where a tie decides."""


def _tokens(size: int) -> tuple[Tensor, Tensor, float]:
    return torch.randint(0, 50, (2, size)), torch.rand(2, size) > 0.25, 0.5


NETWORKS: Mapping[str, Network] = {
    "perceptron": Network(Perceptron, lambda n: (torch.randn(n, 16),), lambda d: ({0: d},), quantizable=True),
    "convnet": Network(ConvNet, lambda n: (torch.randn(n, 3, 16, 16),), lambda d: ({0: d},), quantizable=True),
    "block": Network(Block, lambda n: (torch.randn(2, n, 16),), lambda d: ({1: d},)),
    "recurrent": Network(Recurrent, lambda n: (torch.randn(n, 3, 8),), lambda d: ({0: d},)),
    "tagger": Network(Tagger, _tokens, lambda d: ({1: d}, {1: d}, None)),
}


def variable() -> Any:
    """The dimension that may vary."""
    return Dim("n", min=2, max=16)
