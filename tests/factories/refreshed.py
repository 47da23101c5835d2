"""A repository whose goldens were refreshed many times, each time by noise."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from factories.repositories import Repository, curves, golden_path, golden_text

ONE, TWO = golden_path("one"), golden_path("two")
NOON = 1_760_000_000
DAY = 86_400


def noisy(seed: int, *, loss: float = 2e-5) -> dict[str, np.ndarray]:
    """The same run once more; `loss` is how far its loss moves, relatively."""
    random = np.random.default_rng(seed)
    values = curves(1)
    values["lm loss"] = np.round(values["lm loss"] * (1 + loss * random.standard_normal(50)), 7)
    values["iteration-time"] = np.round(values["iteration-time"] * (1 + 0.02 * random.standard_normal(50)), 5)
    return values


def refreshed(root: Path, texts: list[Mapping[str, str]]) -> Repository:
    """A repository with one commit a day, each of which writes these files; made in one process."""
    repository = Repository(root)
    parts = []
    for number, files in enumerate(texts):
        parts.append(
            f"commit refs/heads/main\ncommitter t <t@example.invalid> {NOON + DAY * number} +0000\ndata 1\nc\n"
        )
        for name, text in files.items():
            parts.append(f"M 100644 inline {name}\ndata {len(text.encode())}\n{text}\n")
    data = "".join(parts).encode()
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input=data, check=True)
    repository.git("reset", "--hard", "--quiet")
    return repository


def months(count: int) -> list[Mapping[str, str]]:
    """So many refreshes of one golden by noise; the other is there, and is refreshed twice."""
    first: list[Mapping[str, str]] = [
        {"karat.toml": 'preset = "megatron-lm"\n', ONE: golden_text(noisy(0)), TWO: golden_text(noisy(0))}
    ]
    rest = [{ONE: golden_text(noisy(n))} | ({TWO: golden_text(noisy(n))} if n < 3 else {}) for n in range(1, count + 1)]
    return first + rest
