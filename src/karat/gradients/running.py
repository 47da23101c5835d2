"""The running test: what pytest says it runs, where it is this very process that it runs in."""

from __future__ import annotations

import os
import re
import sys

_VARIABLE = "PYTEST_CURRENT_TEST"
_PHASE = re.compile(r" \((setup|call|teardown)\)$")


def running_test() -> str | None:
    """The id of the test that pytest runs in this process right now; None where there is none.

    A process that a test starts has inherited the variable, and may well import pytest; a part of it that every
    session loads, and that `import pytest` does not, tells them apart.
    """
    running = os.environ.get(_VARIABLE)
    if not running or "_pytest.helpconfig" not in sys.modules:
        return None
    return _PHASE.sub("", running)
