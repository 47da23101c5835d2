"""Output: where reports go, and what a terminal may see."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from karat.findings import CannotVerify, Finding, UsageError, exit_code

if TYPE_CHECKING:
    from karat.system.command import Command

_words: list[str] = []
_leaving: list[bool] = []


def remember(words: Sequence[str]) -> None:
    """Keep what was typed, for advice and records; `karat demo` types for the user."""
    _words[:] = words


def typed() -> Command:
    """The command line as typed."""
    from karat.system.command import Command  # noqa: PLC0415 - only for those who quote it

    return Command("karat", *_words)


def leave_at_once() -> None:
    """Let the process end without waiting for libraries that would end it their own way, with a code of their own."""
    _leaving.append(True)


def left_at_once() -> bool:
    """Whether somebody asked for that."""
    return bool(_leaving)


def one_report_each(targets: Mapping[str, str | None]) -> None:
    """Two reports in one place would be neither."""
    by_target: dict[str, list[str]] = {}
    for option, target in targets.items():
        if target is not None:
            by_target.setdefault(target, []).append(option)
    for target, options in by_target.items():
        if len(options) > 1:
            place = "stdout" if target == "-" else target
            raise UsageError(
                f"expected at most one report on {place}, found {' and '.join(options)}",
                next_command=f"karat {_words[0] if _words else 'diff'} --help",
            )


def complain(message: str, next_command: str) -> None:
    """An error in karat's voice, on stderr; names in it are not to be trusted."""
    from karat.report.words import printable  # noqa: PLC0415 - only for mistakes

    print(f"karat: {printable(message)}\nnext: {printable(next_command)}", file=sys.stderr)


def last_line(
    findings: Iterable[Finding], fail_on: Sequence[str] = ("fail",), otherwise: str = ""
) -> None:
    """Every failure ends with the next command: the first finding's that makes the exit code."""
    from karat.report.words import printable  # noqa: PLC0415 - only for failures

    helpful = (f.next for f in findings if f.next and exit_code([f], fail_on=fail_on))
    found = next(helpful, otherwise)
    if found:
        sys.stdout.flush()  # in a log both streams are one, and this is the end of it
        print(f"next: {printable(found)}", file=sys.stderr)


def deliver(target: str, content: bytes | str) -> None:
    """Write a report to a file, whole or not at all, or to stdout for `-`."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    if target == "-":
        sys.stdout.flush()
        # An unbuffered stdout may take a part and say so.
        rest = memoryview(data)
        while rest:
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
        return
    from karat.system.files import write_bytes  # noqa: PLC0415 - not everyone writes a file

    path = Path(target)
    try:
        if target.startswith(("/dev/", "/proc/")) or (path.exists() and not path.is_file()):
            # /dev/stdout, a pipe of the shell: nothing to replace atomically.
            path.write_bytes(data)
        else:
            write_bytes(path.resolve(), data, durable=False)
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


# DOC-HERE bytes_bar: A line on a terminal that says how many bytes are done.

_SOON = 64 << 20
"""Less than this is done before anyone has read the line."""


def bytes_bar(stream: IO[str], verb: str) -> Callable[[int, int], None] | None:
    """Someone to tell how far it is, or None where nobody looks."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return None

    def show(done: int, total: int) -> None:
        if total >= _SOON:
            end = "\r\033[K" if done >= total else ""
            stream.write(f"\r{verb} {done / 1e6:,.0f}/{total / 1e6:,.0f} MB{end}")
            stream.flush()

    return show
