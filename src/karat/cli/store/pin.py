"""`karat pin`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.output import one_report_each
from karat.cli.store import (
    Report,
    jobs_option,
    json_option,
    notice,
    quiet_option,
    settings_of,
    store_option,
    workers_of,
)
from karat.findings import UsageError

if TYPE_CHECKING:
    from karat.store.backends import Backend
    from karat.store.pins import Pinned

_EXAMPLES = """
\b
Examples:
  karat pin models/nightly@2026-11-14 --reason 'release 1.2 was cut from it'
  karat pin --lock bundles.lock.json --reason 'what our consumers use'
  karat pin sha256:3f1a5c0d2b77 --remove
"""


@click.command(epilog=_EXAMPLES)
@click.argument("reference", metavar="[REF]", required=False)
@store_option
@click.option("--reason", metavar="WHY", help="Why it is kept.")
@click.option("--remove", is_flag=True, help="Take the pin away.")
@click.option("--lock", metavar="FILE", help="Everything that a lock file names, instead of REF.")
@jobs_option
@json_option("karat.pin/1")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *, reference: str | None, store: str | None, reason: str | None, remove: bool, lock: str | None,
    jobs: int | None, json_file: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Keep a snapshot for good, whatever becomes of its references.

    Its objects are copied, inside the store, to where neither `karat gc` nor a bucket's own rule deletes.
    """
    from karat.store import report  # noqa: PLC0415 - help must be quick
    from karat.store.backends import open_store  # noqa: PLC0415

    one_report_each({"--json": json_file})
    _check(reference, reason, lock, remove=remove)
    url = settings_of(store)[0]
    workers = workers_of(jobs)

    def work() -> Pinned:
        if reference is not None:
            words = [(open_store(url), reference)]
        else:
            words = _lines(Path(str(lock)), store)
        return _pinned(words, reason, workers, quiet=quiet)

    def lines(told: Pinned) -> Iterator[str]:
        return report.pin_lines(told.pins, reason, removed=told.removed)

    return Report("karat.pin/1", json_file, quiet=quiet).of(work, lines)


def _lines(lock: Path, store: str | None) -> list[tuple[Backend, str]]:
    """What a lock names, each in the store that its line names, unless another was said."""
    from karat.store.backends import open_store  # noqa: PLC0415
    from karat.store.pins import read_lock, store_of  # noqa: PLC0415

    opened: dict[str, Backend] = {}
    words = []
    for name, line in read_lock(lock).items():
        url = store or store_of(lock, line.store)
        if url not in opened:
            opened[url] = open_store(url)
        words.append((opened[url], f"{name}@sha256:{line.digest}"))
    return words


def _pinned(
    words: list[tuple[Backend, str]], reason: str | None, workers: int, *, quiet: bool
) -> Pinned:
    from karat.store import pins, references  # noqa: PLC0415

    # All are looked up before any is touched.
    found = [(backend, references.resolve(backend, word)) for backend, word in words]
    done = []
    for backend, one in found:
        pin = pins.read(backend, one.digest)
        if reason is not None:
            pin = pins.pin(
                backend, one.digest, reason, one.name, workers=workers, notice=notice(quiet=quiet)
            )
        elif pin is not None:
            pins.remove(backend, one.digest)
        done += [pin] if pin is not None else []
    stores = ", ".join(dict.fromkeys(backend.url for backend, _ in words))
    return pins.Pinned(store=stores, pins=tuple(done), removed=reason is None)


def _check(reference: str | None, reason: str | None, lock: str | None, *, remove: bool) -> None:
    if (reference is None) == (lock is None):
        raise UsageError(
            "expected REF or --lock FILE, found both or neither", next_command="karat pin --help"
        )
    if remove == bool(reason and reason.strip()):
        raise UsageError(
            "expected --reason WHY or --remove, found both or neither: whoever pins says why",
            next_command="karat pin --help",
        )
    if lock is not None and not Path(lock).is_file():
        raise UsageError(
            f"--lock: expected a lock file, found nothing at {lock}", next_command=f"ls -l {lock}"
        )
