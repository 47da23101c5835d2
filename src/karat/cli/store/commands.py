"""`karat push`, `pull`, `ls`, `pin` and `gc`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.output import Reports, bytes_line, one_report_each, repeatable, report_options
from karat.cli.store import Meter, Report, jobs_option, notice, settings_of, store_option, workers_of
from karat.findings import CannotVerify, KaratError, UsageError

if TYPE_CHECKING:
    from karat.store.backends.lifecycle import AppliedRule
    from karat.store.inventory import StoreListing
    from karat.store.pins import Pinned
    from karat.store.pull import Pulled
    from karat.store.push import Pushed

_PUSH_EXAMPLES = """
  karat push captures models/nightly
  karat push captures models/nightly --store s3://bucket/goldens --keep 30
  karat push packed/golden_artifacts_26111504.zip models/release-1.2
  karat push store:models/nightly models/copy --store /mnt/goldens
  karat push captures models/nightly --sign ~/.ssh/id_ed25519
"""
_PULL_EXAMPLES = """
  karat pull models/nightly goldens
  karat pull models/nightly@2026-11-14 goldens --store s3://bucket/goldens
  karat pull models/nightly goldens --only 'models/xnnpack/**' --replace
  karat pull models/nightly goldens --lock bundles.lock.json
  karat pull models/nightly goldens --require-signed
"""


@click.command(epilog=_PUSH_EXAMPLES)
@click.argument("place")
@click.argument("name")
@store_option
@click.option(
    "--keep", type=click.IntRange(1, 36500), metavar="DAYS", help="How long to keep it; default: [store].retention, 90."
)
@click.option("--lifecycle", is_flag=True, help="Also write the bucket's rule that deletes what is old in expiring/.")
@click.option(
    "--sign",
    type=click.Path(path_type=Path),
    metavar="KEY",
    help="Sign it with this SSH key: one without a passphrase, or held by ssh-agent.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be sent, send nothing.")
@jobs_option
@report_options("karat.push/1")
def push(
    *, place: str, name: str, store: str | None, lifecycle: bool, jobs: int | None, out: Reports, **given: Any
) -> int:
    """Upload captured cases to a store, under a name.

    PLACE is a capture directory, a zip, or store:REFERENCE; NAME is such as models/nightly. Every case is
    verified first. Only what the store lacks is sent; the name is updated only once everything is uploaded.
    """
    from karat.store.backends import lifecycle as rules, open_backend
    from karat.store.place import open_word
    from karat.store.push import PushOptions, Refused, Watchers, lines, push_place
    from karat.store.references import check_name, ci_of
    from karat.system.command import Command

    check_name(name)
    url, settings = settings_of(store)
    options = PushOptions(
        retention=settings.retention,
        workers=workers_of(jobs),
        ci=ci_of(os.environ),
        again=Command("karat", "push", place, name),
        **given,
    )
    report = Report("karat.push/1", out)
    # `store:` means the configured store, not the one that is pushed to.
    try:
        opened = open_word(place, store=settings_of(None)[0])
    except KaratError as error:
        return report.failed(error)
    try:
        backend = open_backend(url)
        sending = Meter("sending", quiet=out.quiet)
        say = notice(quiet=out.quiet)
        watchers = Watchers(sending=sending.expect, sent=sending.advance, notice=say)
        applied: list[AppliedRule] = []

        def work() -> Pushed:
            if lifecycle and not options.dry_run:
                applied.append(rules.apply(backend, options.keep or options.retention))
            progress = None if out.quiet else bytes_line(sys.stderr, "verifying")
            return push_place(backend, opened, name, options, watchers, progress)

        return report.of(work, lambda done: lines(done, applied[0] if applied else None))
    except Refused as refused:
        return report.refused(refused.findings)
    finally:
        opened.close()


@click.command(epilog=_PULL_EXAMPLES)
@click.argument("reference", metavar="REF")
@click.argument("dest")
@store_option
@repeatable("--only", "GLOB", "Only cases whose path matches.")
@click.option("--replace", is_flag=True, help="Replace the contents of DEST.")
@click.option("--lock", metavar="FILE", help="Pull what this lock file names; what it does not name yet is added.")
@click.option("--require-signed", is_flag=True, help="Refuse what no known key has signed.")
@click.option("--update", is_flag=True, help="Update the lock to REF's current snapshot.")
@jobs_option
@report_options("karat.pull/1")
def pull(
    *, reference: str, dest: str, store: str | None, lock: str | None, update: bool, out: Reports, **given: Any
) -> int:
    """Download cases from a store into a new folder.

    REF is a name (the newest), NAME@2026-11-14, NAME@sha256:… or sha256:…. DEST appears once every byte
    has been verified. An interrupted pull continues where it stopped.
    """
    from msgspec import structs

    from karat.store import pins, references
    from karat.store.backends import open_store
    from karat.store.pins import Locked, read_lock, store_in, store_of, write_lock
    from karat.store.pull import PullOptions, lines, pull
    from karat.system.command import Command

    one_report_each({"--json": out.targets["json"], "--lock": lock})
    if update and lock is None:
        raise UsageError("--update needs --lock FILE", next_command="karat pull --help")
    wanted = references.parse(reference)
    meter, require_signed, jobs = Meter("pulling", quiet=out.quiet), given.pop("require_signed"), given.pop("jobs")

    def work() -> Pulled:
        lines = read_lock(Path(lock)) if lock is not None else {}
        locked, word = None if update else lines.get(wanted.name or ""), reference
        if locked is not None:
            if wanted.digest is not None and not locked.digest.startswith(wanted.digest):
                said = f"expected {reference} to be what the lock names, found sha256:{locked.digest} there"
                then = Command("karat", "pull", reference, str(Path(dest)), "--lock", str(lock), "--update")
                raise UsageError(said, next_command=then)
            word = f"{wanted.name}@sha256:{locked.digest}"
        url, settings = settings_of(store)
        if lock is not None and locked is not None and store is None:
            url = store_of(Path(lock), locked.store)
        backend = open_store(url)
        found = references.resolve(backend, word)
        own = Path(settings.signers) if require_signed and not os.environ.get(references.SIGNERS) else None
        signed_by = references.check_signed(backend, found, own)
        pinned = pins.read(backend, found.digest) is not None
        options = PullOptions(workers=workers_of(jobs), pinned=pinned, **given)
        result = pull(backend, found.digest, Path(dest), options, meter.expect, meter.advance)
        name = wanted.name or found.name
        date = locked.date if locked is not None else found.date
        if lock is not None:
            place = store_in(Path(lock), backend.url)
            write_lock(Path(lock), {name: Locked(store=place, digest=found.digest, date=date)})
        return structs.replace(result, name=name, date=date, signed_by=signed_by)

    return Report("karat.pull/1", out).of(work, lines)


_LS_EXAMPLES = """
  karat ls
  karat ls models/nightly --store s3://bucket/goldens
  karat ls models/nightly@2026-11-14 --cases
  karat ls --json -
"""
_PIN_EXAMPLES = """
  karat pin models/nightly@2026-11-14 --reason 'release 1.2 was cut from it'
  karat pin sha256:3f1a5c0d2b77 --remove
"""
_GC_EXAMPLES = """
  karat gc --dry-run
  karat gc --store s3://bucket/goldens --lock bundles.lock.json
"""


@click.command(epilog=_LS_EXAMPLES)
@click.argument("reference", metavar="[REF]", required=False)
@store_option
@click.option("--cases", is_flag=True, help="The cases of one snapshot.")
@report_options("karat.ls/1")
def ls(*, reference: str | None, store: str | None, cases: bool, out: Reports) -> int:
    """List what a store holds: names, dates, digests, sizes, expiry and pins.

    Without REF, the newest of every name; with a name, all of it; with NAME@… or sha256:…, that one.
    """
    from karat.store import inventory
    from karat.store.backends import open_store

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

    return Report("karat.ls/1", out).of(work, inventory.lines, errors)


@click.command(epilog=_PIN_EXAMPLES)
@click.argument("reference", metavar="REF")
@store_option
@click.option("--reason", metavar="WHY", help="Why it is kept.")
@click.option("--remove", is_flag=True, help="Remove the pin.")
@jobs_option
@report_options("karat.pin/1")
def pin(*, reference: str, store: str | None, reason: str | None, remove: bool, jobs: int | None, out: Reports) -> int:
    """Keep a snapshot permanently, even if its references expire.

    Its objects are copied, inside the store, to where neither `karat gc` nor a bucket's own rule deletes.
    """
    from karat.store import pins, references
    from karat.store.backends import open_store

    if remove == bool(reason and reason.strip()):
        raise UsageError("pass either --reason WHY or --remove", next_command="karat pin --help")
    url = settings_of(store)[0]
    workers = workers_of(jobs)

    def work() -> Pinned:
        backend = open_store(url)
        found = references.resolve(backend, reference)
        pin = pins.read(backend, found.digest)
        if reason is not None:
            pin = pins.pin(backend, found.digest, reason, found.name, workers=workers, notice=notice(quiet=out.quiet))
        elif pin is not None:
            pins.remove(backend, found.digest)
        return pins.Pinned(store=backend.url, pins=() if pin is None else (pin,), removed=reason is None)

    return Report("karat.pin/1", out).of(work, lambda done: pins.lines(done, reason))


@click.command(epilog=_GC_EXAMPLES)
@store_option
@click.option("--dry-run", is_flag=True, help="Show what would be deleted and why; delete nothing.")
@repeatable("--lock", "FILE", "Keep what it names, as [store].locks do.", to="locks")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=24,
    metavar="HOURS",
    help="How long to keep unused objects; default: 24.",
)
@click.option("--expire-newest", is_flag=True, help="Also forget the newest reference of a name once it expired.")
@jobs_option
@report_options("karat.gc/1")
def gc(*, store: str | None, locks: tuple[str, ...], jobs: int | None, out: Reports, **given: Any) -> int:
    """Delete expired references, and objects that nothing needs.

    Nothing that a pin, a lock file, an unexpired reference or a running push needs is deleted. If any of these cannot be read, nothing is deleted at all.
    """
    from karat.config import find
    from karat.store.backends import open_store
    from karat.store.gc import GcOptions, collect, lines

    url, settings = settings_of(store)
    # Files that were named must be there; what globs of the configuration find is taken as well.
    file = find(Path.cwd())
    root = file.parent if file is not None else Path.cwd()
    found = [path for glob in settings.locks for path in sorted(root.glob(glob)) if path.is_file()]
    options = GcOptions(locks=tuple(dict.fromkeys([*map(Path, locks), *found])), workers=workers_of(jobs), **given)
    return Report("karat.gc/1", out).of(lambda: collect(open_store(url), options), lines)
