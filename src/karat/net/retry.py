"""Patience: how often to ask again, and how long to wait before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

import msgspec


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How much trouble is borne before giving up."""

    attempts: int = 5
    """Failures in a row without a single new byte."""
    first_wait: float = 0.5
    longest_wait: float = 20.0
    """Between two attempts, when the server does not say how long."""
    limit_wait: float = 900.0
    """The longest wait for a rate limit to reset; beyond it, the person is told when."""
    connect_timeout: float = 15.0
    read_timeout: float = 60.0
    sleep: Callable[[float], object] | None = None
    """None: wait, but wake up when the work is called off."""
    clock: Callable[[], float] = time.time

    def backoff(self, attempt: int, chance: float) -> float:
        """Seconds before attempt number `attempt` (from 1); `chance` in [0, 1) spreads the crowd."""
        full: float = min(self.longest_wait, self.first_wait * 2.0 ** min(attempt - 1, 30))
        return full * (0.5 + chance / 2)


def limited_for(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the server's rate limit ends; None if this is no answer about a limit."""
    if status not in {403, 429, 503}:
        return None
    after = _retry_after(headers.get("retry-after", ""), now)
    if after is not None:
        return after
    if status != 503 and headers.get("x-ratelimit-remaining") == "0":
        return _until(headers.get("x-ratelimit-reset", ""), now)
    if status != 503 and headers.get("ratelimit-remaining") == "0":
        return _until(headers.get("ratelimit-reset", ""), now)
    return None


def _retry_after(text: str, now: float) -> float | None:
    """Seconds, from a number of them or a date."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 12:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _until(text: str, now: float) -> float | None:
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        return None
    # One second more, since the two clocks differ by some part of one.
    return max(0.0, float(text) - now) + 1.0
