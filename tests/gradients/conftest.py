"""One thread for torch: with several, small operators wait for each other wherever cores are few."""

from __future__ import annotations

import os

# Read when torch is first imported, which a test does later.
os.environ.setdefault("OMP_NUM_THREADS", "1")
