"""Real git repositories with goldens in them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

NAMES = ("lm loss", "num-zeros", "mem-allocated-bytes", "iteration-time")


class Repository:
    """A git repository in a folder, with just what tests need."""

    def __init__(self, root: Path, *flags: str) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main", *flags)

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *identity, *words], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def commit(self, message: str = "more") -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", f"--message={message}")
        return self.git("rev-parse", "HEAD").strip()


def curves(seed: int, *, steps: int = 50) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "lm loss": np.round(10.9 - np.linspace(0, 1.4, steps) + rng.normal(0, 0.01, steps), 5),
        "num-zeros": np.round(rng.normal(2200, 100, steps)),
        "mem-allocated-bytes": np.full(steps, 2090120192.0),
        "iteration-time": np.round(0.5 + 0.02 * rng.random(steps), 5),
    }


def moved(curve: np.ndarray, factor: float) -> np.ndarray:
    """The curve of another run: `factor` times as high on average, and not to the digit, which no run is."""
    jitter = 1 + 0.1 * (-1.0) ** np.arange(len(curve))
    other: np.ndarray = curve * (1 + (factor - 1) * jitter)
    return other


def golden_text(values: Mapping[str, np.ndarray], *, stop: int | None = None, indent: int | None = 4) -> str:
    """A golden as Megatron writes it; `stop` for a run that died there."""
    blocks = {}
    for name, curve in values.items():
        samples: dict[str, float | str] = {}
        for step, value in enumerate(curve.tolist(), 1):
            dead = stop is not None and step > stop
            samples[str(step)] = "nan" if dead or (name == "iteration-time" and step == 1) else value
        blocks[name] = {"start_step": 1, "end_step": len(curve), "step_interval": 1, "values": samples}
    return json.dumps(blocks, indent=indent)


def golden_path(case: str, platform: str = "dgx_h100") -> str:
    return f"tests/functional_tests/test_cases/gpt/{case}/golden_values_dev_{platform}.json"
