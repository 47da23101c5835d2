"""`karat ls`, `karat pin` and `karat gc`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.output import json_option, one_report_each, quiet_option
from karat.cli.store import Report, jobs_option, notice, settings_of, store_option, workers_of
from karat.findings import CannotVerify, UsageError

if TYPE_CHECKING:
    from karat.store.inventory import StoreListing
    from karat.store.pins import Pinned

_LS_EXAMPLES = """
\b
Examples:
  karat ls
  karat ls models/nightly --store s3://bucket/goldens
  karat ls models/nightly@2026-11-14 --cases
  karat ls --json -
"""
_PIN_EXAMPLES = """
\b
Examples:
  karat pin models/nightly@2026-11-14 --reason 'release 1.2 was cut from it'
  karat pin --lock bundles.lock.json --reason 'what our consumers use'
  karat pin sha256:3f1a5c0d2b77 --remove
"""
_GC_EXAMPLES = """
\b
Examples:
  karat gc --dry-run
  karat gc --store s3://bucket/goldens --lock bundles.lock.json
  karat gc --retention 30 --json gc.json
"""


@click.command(epilog=_LS_EXAMPLES)
@click.argument("reference", metavar="[REF]", required=False)
@store_option
@click.option("--cases", is_flag=True, help="The cases of one snapshot.")
@json_option("karat.ls/1")
def ls(*, reference: str | None, store: str | None, cases: bool, json_file: str | None) -> int:
    """List what a store holds: names, dates, digests, sizes, expiry and pins.

    Without REF, the newest of every name; with a name, all of it; with NAME@… or sha256:…, that one.
    """
    from karat.store import inventory, report
    from karat.store.backends import open_store

    one_report_each({"--json": json_file})
    if cases and reference is None:
        raise UsageError("--cases needs REF", next_command="karat ls")
    url = settings_of(store)[0]

    errors: list[CannotVerify] = []

    def work() -> StoreListing:
        backend = open_store(url)
        if cases and reference is not None:
            return inventory.list_cases(backend, reference)
        if reference is None:
            result, errors[:] = inventory.list_names(backend)
        else:
            result, errors[:] = inventory.list_entries(backend, reference)
        return result

    return Report("karat.ls/1", json_file, quiet=False).of(work, report.ls_lines, errors)


@click.command(epilog=_PIN_EXAMPLES)
@click.argument("reference", metavar="[REF]", required=False)
@store_option
@click.option("--reason", metavar="WHY", help="Why it is kept.")
@click.option("--remove", is_flag=True, help="Remove the pin.")
@click.option("--lock", metavar="FILE", help="Everything that a lock file names, instead of REF.")
@jobs_option
@json_option("karat.pin/1")
@quiet_option
def pin(  # noqa: PLR0913 - one parameter per option
    *,
    reference: str | None,
    store: str | None,
    reason: str | None,
    remove: bool,
    lock: str | None,
    jobs: int | None,
    json_file: str | None,
    quiet: bool,
) -> int:
    """Keep a snapshot permanently, even if its references expire.

    Its objects are copied, inside the store, to where neither `karat gc` nor a bucket's own rule deletes.
    """
    from karat.store import pins, references, report
    from karat.store.backends import open_store
    from karat.store.pins import read_lock, store_of
    from karat.system.command import Command

    one_report_each({"--json": json_file})
    if (reference is None) == (lock is None):
        raise UsageError("expected REF or --lock FILE, found both or neither", next_command="karat pin --help")
    if remove == bool(reason and reason.strip()):
        raise UsageError("pass either --reason WHY or --remove", next_command="karat pin --help")
    if lock is not None and not Path(lock).is_file():
        said = f"--lock: expected a lock file, found nothing at {lock}"
        raise UsageError(said, next_command=Command("ls", "-l", lock))
    url = settings_of(store)[0]
    workers = workers_of(jobs)

    def work() -> Pinned:
        if reference is not None:
            words = [(open_store(url), reference)]
        else:  # each in the store that its line of the lock names, unless another was said
            file = Path(str(lock))
            lines = {name: (store or store_of(file, line.store), line) for name, line in read_lock(file).items()}
            opened = {place: open_store(place) for place in {place for place, _ in lines.values()}}
            words = [(opened[place], f"{name}@sha256:{line.digest}") for name, (place, line) in lines.items()]
        # All are looked up before any is touched.
        found = [(backend, references.resolve(backend, word)) for backend, word in words]
        done = []
        for backend, one in found:
            pin = pins.read(backend, one.digest)
            if reason is not None:
                pin = pins.pin(backend, one.digest, reason, one.name, workers=workers, notice=notice(quiet=quiet))
            elif pin is not None:
                pins.remove(backend, one.digest)
            done += [pin] if pin is not None else []
        stores = ", ".join(dict.fromkeys(backend.url for backend, _ in words))
        return pins.Pinned(store=stores, pins=tuple(done), removed=reason is None)

    return Report("karat.pin/1", json_file, quiet=quiet).of(work, lambda done: report.pin_lines(done, reason))


@click.command(epilog=_GC_EXAMPLES)
@store_option
@click.option("--dry-run", is_flag=True, help="Show what would be deleted and why; delete nothing.")
@click.option(
    "--lock", "locks", multiple=True, metavar="FILE", help="Keep what it names, as [store].locks do. Repeatable."
)
@click.option(
    "--retention",
    type=click.IntRange(1, 36500),
    metavar="DAYS",
    help="Retention for references pushed without --keep (default: the setting at the time of the push).",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=24,
    metavar="HOURS",
    help="How long to keep unused objects; default: 24.",
)
@click.option("--expire-newest", is_flag=True, help="Also forget the newest reference of a name once it expired.")
@jobs_option
@json_option("karat.gc/1")
@quiet_option
def gc(
    *,
    store: str | None,
    locks: tuple[str, ...],
    jobs: int | None,
    json_file: str | None,
    quiet: bool,
    **given: Any,  # as GcOptions names them
) -> int:
    """Delete expired references, and objects that nothing needs.

    What a pin, a lock file, an unexpired reference or a running push needs is never deleted. If anything of
    that cannot be read, nothing is deleted at all.
    """
    from karat.config import find
    from karat.store import report
    from karat.store.backends import open_store
    from karat.store.gc import GcOptions, collect

    one_report_each({"--json": json_file})
    url, settings = settings_of(store)
    # Files that were named must be there; what globs of the configuration find is taken as well.
    file = find(Path.cwd())
    root = file.parent if file is not None else Path.cwd()
    found = [path for glob in settings.locks for path in sorted(root.glob(glob)) if path.is_file()]
    options = GcOptions(locks=tuple(dict.fromkeys([*map(Path, locks), *found])), workers=workers_of(jobs), **given)
    return Report("karat.gc/1", json_file, quiet=quiet).of(lambda: collect(open_store(url), options), report.gc_lines)
