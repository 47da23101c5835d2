"""`karat pull`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.output import one_report_each
from karat.cli.store import (
    Meter,
    Report,
    jobs_option,
    json_option,
    quiet_option,
    settings_of,
    store_option,
    workers_of,
)
from karat.findings import UsageError

if TYPE_CHECKING:
    from karat.store.pins import Locked
    from karat.store.pull import Pulled, PullOptions

_EXAMPLES = """
\b
Examples:
  karat pull models/nightly goldens
  karat pull models/nightly@2026-11-14 goldens --store s3://bucket/goldens
  karat pull models/nightly goldens --only 'models/xnnpack/**' --replace
  karat pull models/nightly goldens --lock bundles.lock.json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("reference", metavar="REF")
@click.argument("dest")
@store_option
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Only cases whose path matches. Repeatable."
)
@click.option("--replace", is_flag=True, help="Put it in the place of what DEST holds.")
@click.option(
    "--lock", metavar="FILE",
    help="Pull what this lock file names; what it does not name yet is added.",
)  # fmt: skip
@click.option("--update", is_flag=True, help="Move the lock to what REF means now.")
@jobs_option
@json_option("karat.pull/1")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *, reference: str, dest: str, store: str | None, only: tuple[str, ...], replace: bool,
    lock: str | None, update: bool, jobs: int | None, json_file: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Bring cases from a store into a new folder.

    REF is a name (the newest), NAME@2026-11-14, NAME@sha256:… or sha256:…. DEST appears once every byte
    has been verified. A pull that was broken off goes on where it was.
    """
    from karat.store import report  # noqa: PLC0415 - help must be quick
    from karat.store.pull import PullOptions  # noqa: PLC0415
    from karat.store.references import parse  # noqa: PLC0415

    one_report_each({"--json": json_file, "--lock": lock})
    if update and lock is None:
        raise UsageError(
            "--update: expected --lock FILE beside it, found none", next_command="karat pull --help"
        )
    parse(reference)
    options = PullOptions(only=only, replace=replace, workers=workers_of(jobs))
    meter = Meter("pulling", quiet=quiet)

    def work() -> Pulled:
        return _pull(reference, Path(dest), store, lock, options, meter, update=update)

    return Report("karat.pull/1", json_file, quiet=quiet).of(work, report.pull_lines)


def _pull(  # noqa: PLR0913 - what there is to know
    reference: str, dest: Path, store: str | None, lock: str | None, options: PullOptions,
    meter: Meter, *, update: bool,
) -> Pulled:  # fmt: skip
    import msgspec  # noqa: PLC0415

    from karat.store import pins, references  # noqa: PLC0415
    from karat.store.backends import open_store  # noqa: PLC0415
    from karat.store.pins import Locked, read_lock, store_in, store_of, write_lock  # noqa: PLC0415
    from karat.store.pull import pull  # noqa: PLC0415

    lines = read_lock(Path(lock)) if lock is not None else {}
    word, locked = _locked(
        reference, lines, shlex.join([str(dest), "--lock", str(lock)]), update=update
    )
    url = settings_of(store)[0]
    if lock is not None and locked is not None and store is None:
        url = store_of(Path(lock), locked.store)
    backend = open_store(url)
    found = references.resolve(backend, word)
    pinned = pins.read(backend, found.digest) is not None
    chosen = msgspec.structs.replace(options, pinned=pinned)
    told = pull(backend, found.digest, dest, chosen, meter.expect, meter.advance)
    name = references.parse(reference).name or found.name
    date = locked.date if locked is not None else found.date
    if lock is not None:
        place = store_in(Path(lock), backend.url)
        lines[name] = Locked(store=place, digest=found.digest, date=date)
        write_lock(Path(lock), lines)
    return msgspec.structs.replace(told, name=name, date=date)


def _locked(
    reference: str, lines: dict[str, Locked], rest: str, *, update: bool
) -> tuple[str, Locked | None]:
    """What to pull: the line of the lock, if it has one and is not to be moved."""
    from karat.store.references import parse  # noqa: PLC0415

    wanted = parse(reference)
    line = lines.get(wanted.name or "")
    if line is None or update:
        return reference, None
    if wanted.digest is not None and not line.digest.startswith(wanted.digest):
        raise UsageError(
            f"expected {reference} to be what the lock names, found sha256:{line.digest} there",
            next_command=f"karat pull {shlex.quote(reference)} {rest} --update",
        )
    return f"{wanted.name}@sha256:{line.digest}", line
