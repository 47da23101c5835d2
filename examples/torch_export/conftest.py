"""What every test of the suite has: the flow it is for, and a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from flows import FLOWS

if TYPE_CHECKING:
    from flows import Flow


@pytest.fixture(params=FLOWS.values(), ids=FLOWS)
def flow(request: pytest.FixtureRequest) -> Flow:
    """Called `flow`, so karat files the captures of a test under its name."""
    return request.param


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20260315)
