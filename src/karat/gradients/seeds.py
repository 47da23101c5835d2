"""Seeds: the same case draws the same probes, on every machine and in every order."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from karat.gradients.problem import Problem


def identity_of(problem: Problem, given: str | None) -> str:
    """What the probes are drawn from: op, names, shapes and dtypes of the case, and the test's own id."""
    slots = [(slot.name, slot.shape, slot.dtype) for slot in (*problem.inputs, *problem.outputs)]
    return json.dumps([problem.op, slots, given or ""], separators=(",", ":"))


def seed_of(identity: str) -> int:
    """63 bits of the identity's sha256."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8]) >> 1


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """A generator for one purpose, so that one more draw here moves no draw there."""
    return np.random.default_rng([seed, *purpose])
