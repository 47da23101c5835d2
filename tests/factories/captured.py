"""Capture directories as test sessions leave them: small, seeded, the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from karat.bundles.manifest import Comparator, Environment, Identity, case_path
from karat.bundles.write import NewCase, write_case

ENVIRONMENT = Environment(platform="linux", machine="x86_64", python="3.11.7")
COMPARATOR = Comparator(name="karat", rtol=1e-3, atol=1e-5)


def identity(test: str = "test_a", *, suite: str = "models", flow: str = "xnnpack") -> Identity:
    return Identity(suite=suite, flow=flow, test=f"tests/test_models.py::{test}")


def capture(root: Path, who: Identity, **changes: Any) -> Path:
    """Writes one case as a capture session publishes it; its folder."""
    rng = np.random.default_rng(len(who.test) + sum(map(ord, who.flow)))
    said: dict[str, Any] = {
        "identity": who,
        "inputs": (rng.standard_normal((2, 3), dtype=np.float32), 7),
        "expected": {"logits": rng.standard_normal((4,)), "ok": np.array([True, False])},
        "program": b"PROGRAM " + who.test.encode(),
        "program_name": "model.pte",
        "comparator": COMPARATOR,
        "environment": ENVIRONMENT,
        "session": "session-1",
        "created": "2026-11-15T04:00:00Z",
    }
    folder = root / case_path(who)
    folder.mkdir(parents=True)
    write_case(folder, NewCase(**{**said, **changes}))
    return folder


def capture_many(root: Path, count: int = 3, *, flows: tuple[str, ...] = ("xnnpack", "portable")) -> Path:
    """Several tests in each of several flows; the root."""
    for flow in flows:
        for number in range(count):
            capture(root, identity(f"test_{number}[static]", flow=flow))
    return root
