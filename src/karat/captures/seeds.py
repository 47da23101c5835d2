"""Seeds: what is known of the random numbers behind a case."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


def seeds(given: Mapping[str, int | str] | None = None) -> dict[str, int | str]:
    """The initial seed of torch if that is loaded, PYTHONHASHSEED if set, and what the test says.

    numpy and jax have no seed to ask for: a generator does not remember it, a key is a value.
    """
    found: dict[str, int | str] = {}
    initial = getattr(sys.modules.get("torch"), "initial_seed", None)
    if initial is not None:
        found["torch"] = int(initial())
    if os.environ.get("PYTHONHASHSEED"):
        found["PYTHONHASHSEED"] = os.environ["PYTHONHASHSEED"]
    return dict(sorted((found | dict(given or {})).items()))
