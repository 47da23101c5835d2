"""One thread for torch: with several, small operators wait for each other wherever cores are few."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

# Read when torch is first imported, which a test does later.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def _as_within_a_check() -> Iterator[None]:
    """A check lets numpy divide by zero in silence, once for all of its parts, which are tested here one by one."""
    with np.errstate(all="ignore"):
        yield
