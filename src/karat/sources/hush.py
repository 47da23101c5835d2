"""Hush: the libraries beneath log URLs and headers; of karat's requests they log nothing.

httpx logs each URL, where a signature may stand, and httpcore each answer's headers, where the next
signed URL stands. Both do so whenever somebody asks for their logs, so it is not enough to be silent
by default. Requests that others make in the same process keep their logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = (
    "httpx",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.http2",
    "httpcore.proxy",
    "httpcore.socks",
)
_thread = threading.local()


class _Filter(logging.Filter):
    def filter(self, _record: logging.LogRecord) -> bool:
        return not getattr(_thread, "hushed", False)


_FILTER = _Filter()


@contextmanager
def hush() -> Iterator[None]:
    """Nothing of what this thread sends or receives meanwhile is logged."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    before = getattr(_thread, "hushed", False)
    _thread.hushed = True
    try:
        yield
    finally:
        _thread.hushed = before
