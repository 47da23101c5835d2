"""Output: where reports go, and what a terminal may see."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from karat.findings import CannotVerify, UsageError


def at_most_one_stdout(targets: Mapping[str, str | None]) -> None:
    """Two reports on one stdout would be neither."""
    chosen = [option for option, target in targets.items() if target == "-"]
    if len(chosen) > 1:
        raise UsageError(
            f"expected at most one report on stdout, found {' and '.join(chosen)}",
            next_command="karat diff --help",
        )


def deliver(target: str, content: bytes | str) -> None:
    """Write a report to a file, whole or not at all, or to stdout for `-`."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    if target == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    from karat.goldens.atomic import write_bytes  # noqa: PLC0415 - not everyone writes a file

    path = Path(target)
    try:
        if path.exists() and not path.is_file():
            # /dev/stdout, a pipe of the shell: nothing to replace atomically.
            path.write_bytes(data)
        else:
            write_bytes(path, data, durable=False)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {target}, but: {error.strerror or error}",
            next_command=f"ls -ld {path.parent}",
        ) from error


def progress_bar(stream: IO[str]) -> Callable[[int, int], None] | None:
    """A progress line on a terminal, None elsewhere; silent for work that is quick anyway."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return None

    def show(done: int, total: int) -> None:
        if total >= 200 and (done % 50 == 0 or done == total):
            end = "\r\033[K" if done == total else ""
            stream.write(f"\rcomparing goldens {done:,}/{total:,}{end}")
            stream.flush()

    return show
