"""What commands share: common options, where reports go, and what a terminal shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

import click

from karat.findings import CannotVerify, Finding, UsageError, exit_code
from karat.system.command import Command

_words: list[str] = []
_leaving: list[bool] = []
F = TypeVar("F", bound=Callable[..., object])

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only the requested outputs.")

jobs_option = click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), metavar="N", help="Number of processes (default: chosen automatically)."
)
fail_on_option = click.option(
    "--fail-on",
    multiple=True,
    metavar="WHAT",
    help="Exit with 1 on findings of this severity or worse: fail (default), warn, info or none; or on this kind of "
    "finding, in addition. Repeatable.",
)


history_option = click.option(
    "--history/--no-history",
    default=None,
    help="Hold moves against those of earlier refreshes in git. Default: as in karat.toml, else once it was asked for.",
)


def json_option(schema: str) -> Callable[[F], F]:
    """`--json F`."""
    return click.option("--json", "json_file", metavar="F", help=f"Write the report, schema {schema}; - is stdout.")


def remember(words: Sequence[str]) -> None:
    """Keep what was typed, for advice and records; `karat demo` types for the user."""
    _words[:] = words


def typed() -> Command:
    """The command line as typed."""
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
            said = f"expected at most one report on {place}, found {' and '.join(options)}"
            raise UsageError(said, next_command=Command("karat", _words[0] if _words else "diff", "--help"))


def complain(message: str, next_command: str) -> None:
    """An error in karat's voice, on stderr; names in it are not to be trusted."""
    from karat.report.terminal import say

    say(f"karat: {message}", sys.stderr)
    say(f"next: {next_command}", sys.stderr)


def last_line(findings: Iterable[Finding], fail_on: Sequence[str] = ("fail",), otherwise: str = "") -> None:
    """Every failure ends with the next command: the first finding's that makes the exit code."""
    from karat.report.terminal import say

    helpful = (f.next for f in findings if f.next and exit_code([f], fail_on=fail_on))
    found = next(helpful, otherwise)
    if found:
        sys.stdout.flush()  # in a log both streams are one, and this is the end of it
        say(f"next: {found}", sys.stderr)


def deliver(target: str, content: bytes | str | Iterable[bytes]) -> None:
    """Write a report, whole or in pieces, to a file, all of it or nothing, or to stdout for `-`."""
    whole = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    pieces = [whole] if isinstance(whole, bytes) else whole
    shown = target == "-" or (target.startswith(("/dev/", "/proc/")) and not target.startswith("/dev/shm/"))  # noqa: S108
    if shown:
        from karat.report.words import in_a_log
        from karat.system.ci import in_ci, provider_of

        # Not every CI sets the variable CI.
        seen = in_ci() or provider_of() is not None or sys.stdout.isatty()
        text = in_a_log(b"".join(pieces).decode("utf-8", "backslashreplace"), escaping=seen)
        pieces = [text.encode()]
    if target == "-":
        sys.stdout.flush()
        # An unbuffered stdout may take a part and say so.
        rest = memoryview(b"".join(pieces))
        while rest:
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
        return
    from karat.system.files import write_bytes

    path = Path(target)
    try:
        if shown or (path.exists() and not path.is_file()):
            # /dev/stdout, a pipe of the shell: nothing to replace atomically.
            path.write_bytes(b"".join(pieces))
        else:
            write_bytes(path.resolve(), pieces, durable=False)
    except OSError as error:
        said = f"expected to write {target}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("ls", "-ld", str(path.parent))) from error


def progress_line(
    stream: IO[str], words: str, *, least: int = 200, every: int = 50
) -> Callable[[int, int], None] | None:
    """A line on a terminal that counts: `words` with {done} and {total}; None elsewhere.

    Nothing is shown of work with fewer than `least` steps, which is over before anyone has read the line.
    """
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return None

    def show(done: int, total: int) -> None:
        if total >= least and (done % every == 0 or done >= total):
            text = words.format(done=f"{done:,}", total=f"{total:,}")
            stream.write("\r\033[K" if done >= total else f"\r{text}")
            stream.flush()

    return show


def bytes_line(stream: IO[str], verb: str) -> Callable[[int, int], None] | None:
    """The same for bytes: `packing 120/400 MB`."""
    show = progress_line(stream, f"{verb} {{done}}/{{total}} MB", least=64, every=1)
    return show and (lambda done, total: show(done // 1_000_000, total // 1_000_000))
