"""The store's commands: what they share, which store is meant and how a report leaves."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from karat.cli.group import STORE_COMMANDS, LazyGroup
from karat.cli.output import Reports, bytes_line, complain, last_line
from karat.findings import ExitCode, Finding, KaratError, UsageError, fail
from karat.report.terminal import say

if TYPE_CHECKING:
    import msgspec

    from karat.settings import StoreSettings

T = TypeVar("T", bound="msgspec.Struct")

_EXAMPLES = """
  karat store push captures models/nightly
  karat store ls
  karat store pull models/nightly goldens
"""


_HOMES = {name: f"commands:{name}" for name in STORE_COMMANDS}


@click.group(cls=LazyGroup, summaries=STORE_COMMANDS, package=__name__, homes=_HOMES, epilog=_EXAMPLES)
def command() -> None:
    """Keep captured cases in a folder or a bucket.

    Each command also works without the word store: `karat push` is `karat store push`.
    """


store_option = click.option(
    "--store", metavar="URL", help="A folder, or s3://, gs://, az://; by default KARAT_STORE, or [store] of karat.toml."
)
jobs_option = click.option(
    "-j", "--jobs", type=click.IntRange(1, 128), metavar="N", help="Transfers at a time; by default KARAT_JOBS, or 16."
)


def settings_of(store: str | None) -> tuple[str, StoreSettings]:
    """The store's URL, and what karat.toml says of stores."""
    from karat.config import load
    from karat.store.backends import store_url

    settings = load(Path.cwd()).store
    return store_url(store, settings.url, os.environ), settings


def workers_of(jobs: int | None) -> int:
    from karat.system.pool import worker_count

    return jobs or worker_count(os.environ)


class Report:
    """What a verb says, as text or as JSON, whatever came of it."""

    def __init__(self, schema: str, out: Reports) -> None:
        self._schema, self._out = schema, out

    def of(self, work: Callable[[], T], lines: Callable[[T], Iterable[str]], errors: Sequence[KaratError] = ()) -> int:
        """Does the work and tells of it; the exit code. `errors` is what the work leaves of its own accord."""
        from karat.system.pool import in_parallel

        try:
            # In a thread: obstore, waiting for a server that is silent, hears no Ctrl-C.
            (result,) = in_parallel([work], 1, stop=lambda: None)
        except KaratError as error:
            return self.failed(error)
        code = max((one.exit_code for one in errors), default=ExitCode.OK)
        self._deliver(result, tuple(_finding(one) for one in errors), code)
        self._out.show(lambda: lines(result))
        sys.stdout.flush()
        for one in errors[:12]:
            complain(str(one), one.next_command)
        return int(code)

    def failed(self, error: KaratError) -> int:
        """It could not be done; the exit code. What was typed wrongly needs no report."""
        if isinstance(error, UsageError):
            raise error
        self._deliver(None, (_finding(error),), ExitCode(error.exit_code))
        complain(str(error), error.next_command)
        return int(error.exit_code)

    def refused(self, findings: tuple[Finding, ...]) -> int:
        from karat.findings import exit_code

        code = exit_code(findings, fail_on=("fail",))
        self._deliver(None, findings, code)
        for finding in findings[:12]:
            say(f"karat: {finding.kind}: {finding.message}", sys.stderr)
        if len(findings) > 12:
            say(f"karat: and {len(findings) - 12:,} more", sys.stderr)
        last_line(findings, otherwise="karat verify PLACE")
        return int(code)

    def _deliver(self, result: msgspec.Struct | None, findings: tuple[Finding, ...], code: ExitCode) -> None:
        def document() -> bytes:
            import msgspec

            from karat.report.json import encode, finding_json

            told = None if result is None else msgspec.to_builtins(result)
            found = [finding_json(finding) for finding in findings]
            return encode({"schema": self._schema, "exit_code": int(code), "result": told, "findings": found})

        self._out.write(json=document)


class Meter:
    """Shows on a line of the terminal how many bytes many threads have moved."""

    def __init__(self, verb: str, *, quiet: bool) -> None:
        self._show = None if quiet else bytes_line(sys.stderr, verb)
        self._lock = threading.Lock()
        self._done = self._total = 0

    def expect(self, total: int) -> None:
        self._total = total

    def advance(self, count: int) -> None:
        if self._show is not None:
            with self._lock:
                self._done += count
                self._show(self._done, self._total)


def notice(*, quiet: bool) -> Callable[[str], None] | None:
    return None if quiet else lambda text: say(f"karat: {text}", sys.stderr)


def _finding(error: KaratError) -> Finding:
    kind = "transfer-failed" if error.exit_code == ExitCode.CANNOT_VERIFY else "bundle-damaged"
    known: Finding | None = getattr(error, "finding", None)
    return known or fail(kind, str(error), next=error.next_command)
