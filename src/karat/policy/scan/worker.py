"""A worker process of a scan: files in, glances out; started as `python -P -m karat.policy.scan.worker`."""

from __future__ import annotations

import os
import sys

import msgspec

from karat.policy.scan.prefilter import Share, glance, no_collection, unnamed


def main() -> None:
    """Answer one message."""
    share = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Share)
    with no_collection():
        told = [_told(os.fsdecode(path), share.roots) for path in share.paths]
    sys.stdout.buffer.write(msgspec.msgpack.encode(told))


def _told(path: str, roots: tuple[str, ...]) -> bytes | None:
    try:
        return msgspec.msgpack.encode(unnamed(glance(path, roots)))
    except UnicodeEncodeError:
        return None  # a literal with a lone surrogate, which msgpack has no text for: not done here


if __name__ == "__main__":
    main()
