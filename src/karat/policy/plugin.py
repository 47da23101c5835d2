"""The pytest plugin of the gradient policy; it must cost nothing to whoever did not ask for it."""

from __future__ import annotations
