"""Retries: how often to ask again, and how long to wait before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

import msgspec


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a request is tried, and how long each try and each wait may take."""

    attempts: int = 5  # Failures in a row without a single new byte.
    connect_attempts: int = 5  # The same while nothing answers at all.
    first_wait: float = 0.5
    longest_wait: float = 20.0  # Between two attempts, when the server does not say how long.
    spread: float = 0.5  # The share of a wait that chance decides, so that a crowd does not come back at once.
    limit_wait: float = 900.0  # The longest wait for a rate limit to reset; beyond it, the person is told when.
    connect_timeout: float = 15.0
    read_timeout: float = 60.0
    sleep: Callable[[float], object] | None = None  # None: wait, but wake up when the work is stopped.
    clock: Callable[[], float] = time.time

    def backoff(self, attempt: int, chance: float) -> float:
        """Seconds before attempt number `attempt` (from 1); `chance` is in [0, 1)."""
        full: float = min(self.longest_wait, self.first_wait * 2.0 ** min(attempt - 1, 30))
        return full * (1 - self.spread + self.spread * chance)


class Trouble(Exception):  # noqa: N818 - what it is about; whoever retries catches it
    """Something that may pass, found while a request was prepared; status and headers are those of an answer, if any."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


def limited_for(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the server's rate limit ends; None if this is no answer about a limit."""
    if status not in {403, 429, 503}:
        return None
    after = headers.get("retry-after", "").strip()
    if (seconds := _number(after)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(after).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        pass
    for prefix in ("x-ratelimit", "ratelimit") if status != 503 else ():
        if headers.get(f"{prefix}-remaining") == "0":
            reset = _number(headers.get(f"{prefix}-reset", ""))
            # One second more, since the two clocks differ by some part of one.
            return None if reset is None else max(0.0, reset - now) + 1.0
    return None


def _number(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
