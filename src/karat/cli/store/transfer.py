"""`karat push` and `karat pull`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.output import bytes_line, json_option, one_report_each, quiet_option
from karat.cli.store import Meter, Report, jobs_option, notice, settings_of, store_option, workers_of
from karat.findings import KaratError, UsageError

if TYPE_CHECKING:
    from karat.store.backends.lifecycle import Applied
    from karat.store.pins import Locked
    from karat.store.pull import Pulled
    from karat.store.push import Pushed
    from karat.system.command import Command

_PUSH_EXAMPLES = """
\b
Examples:
  karat push captures models/nightly
  karat push captures models/nightly --store s3://bucket/goldens --keep 30
  karat push packed/golden_artifacts_26111504.zip models/release-1.2 --pin 'release 1.2'
  karat push store:models/nightly models/copy --store /mnt/goldens
  karat push captures models/nightly --sign ~/.ssh/id_ed25519
"""
_PULL_EXAMPLES = """
\b
Examples:
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
@click.option("--pin", metavar="WHY", help="Keep it permanently, for this reason.")
@click.option("--lifecycle", is_flag=True, help="Also write the bucket's rule that deletes what is old in expiring/.")
@click.option(
    "--sign",
    type=click.Path(path_type=Path),
    metavar="KEY",
    help="Sign it with this SSH key: one without a passphrase, or held by ssh-agent.",
)
@click.option("--verify-existing", is_flag=True, help="Read objects that the store has, and replace damaged ones.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, send nothing.")
@jobs_option
@json_option("karat.push/1")
@quiet_option
def push(  # noqa: PLR0913 - one parameter per option; those that PushOptions names alike are `given`
    *,
    place: str,
    name: str,
    store: str | None,
    pin: str | None,
    lifecycle: bool,
    jobs: int | None,
    json_file: str | None,
    quiet: bool,
    **given: Any,
) -> int:
    """Upload captured cases to a store, under a name.

    PLACE is a capture directory, a zip, or store:REFERENCE; NAME is such as models/nightly. Every case is
    verified first. Only what the store lacks is sent; the name is updated only once everything is uploaded.
    """
    from karat.store import report as telling
    from karat.store.backends import lifecycle as rules, open_backend
    from karat.store.place import open_word
    from karat.store.push import PushOptions, Watchers, gather, objections, push
    from karat.store.references import check_name, ci_of

    one_report_each({"--json": json_file})
    check_name(name)
    url, settings = settings_of(store)
    options = PushOptions(
        retention=settings.retention,
        pin=pin,
        workers=workers_of(jobs),
        ci=ci_of(os.environ),
        again=push_command(place, name, pin),
        **given,
    )
    report = Report("karat.push/1", json_file, quiet=quiet)
    # `store:` means the configured store, not the one that is pushed to.
    try:
        opened = open_word(place, store=settings_of(None)[0])
    except KaratError as error:
        return report.failed(error)
    try:
        backend = open_backend(url)
        refused = objections(opened, None if quiet else bytes_line(sys.stderr, "verifying"))
        if refused:
            return report.refused(refused)
        hashing, sending = Meter("hashing", quiet=quiet), Meter("sending", quiet=quiet)
        hashing.expect(sum(opened.files().values()))
        say = notice(quiet=quiet)
        watchers = Watchers(hashed=hashing.advance, sending=sending.expect, sent=sending.advance, notice=say)
        applied: list[Applied] = []

        def work() -> Pushed:
            if lifecycle and not options.dry_run:
                applied.append(rules.apply(backend, options.keep or options.retention))
            return push(backend, gather(opened), name, options, watchers)

        return report.of(work, lambda done: telling.push_lines(done, applied[0] if applied else None))
    finally:
        opened.close()


def push_command(place: str, name: str, pin: str | None) -> Command:
    from karat.system.command import Command

    return Command("karat", "push", place, name, *(() if pin is None else ("--pin", pin)))


@click.command(epilog=_PULL_EXAMPLES)
@click.argument("reference", metavar="REF")
@click.argument("dest")
@store_option
@click.option("--only", multiple=True, metavar="GLOB", help="Only cases whose path matches. Repeatable.")
@click.option("--replace", is_flag=True, help="Replace the contents of DEST.")
@click.option("--lock", metavar="FILE", help="Pull what this lock file names; what it does not name yet is added.")
@click.option("--require-signed", is_flag=True, help="Refuse what no known key has signed.")
@click.option(
    "--signers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Whose keys may sign (ssh-keygen's allowed signers); by default KARAT_SIGNERS, [store] signers or .karat/allowed_signers.",
)
@click.option("--update", is_flag=True, help="Update the lock to REF's current snapshot.")
@jobs_option
@json_option("karat.pull/1")
@quiet_option
def pull(  # noqa: PLR0913 - one parameter per option
    *,
    reference: str,
    dest: str,
    store: str | None,
    lock: str | None,
    update: bool,
    require_signed: bool,
    signers: Path | None,
    jobs: int | None,
    json_file: str | None,
    quiet: bool,
    **given: Any,  # as PullOptions names them
) -> int:
    """Download cases from a store into a new folder.

    REF is a name (the newest), NAME@2026-11-14, NAME@sha256:… or sha256:…. DEST appears once every byte
    has been verified. An interrupted pull continues where it stopped.
    """
    from msgspec import structs

    from karat.store import pins, references, report
    from karat.store.backends import open_store
    from karat.store.pins import Locked, read_lock, store_in, store_of, write_lock
    from karat.store.pull import PullOptions, pull

    one_report_each({"--json": json_file, "--lock": lock})
    if update and lock is None:
        raise UsageError("--update needs --lock FILE", next_command="karat pull --help")
    if signers is not None and not require_signed:
        raise UsageError("--signers needs --require-signed", next_command="karat pull --help")
    references.parse(reference)
    meter = Meter("pulling", quiet=quiet)

    def work() -> Pulled:
        lines = read_lock(Path(lock)) if lock is not None else {}
        word, locked = _locked(reference, lines, ("--lock", str(lock), "--update"), Path(dest), update=update)
        url, settings = settings_of(store)
        if lock is not None and locked is not None and store is None:
            url = store_of(Path(lock), locked.store)
        backend = open_store(url)
        found = references.resolve(backend, word)
        own = Path(settings.signers) if require_signed and not os.environ.get(references.SIGNERS) else None
        signed_by = references.check_signed(backend, found, signers or own)
        pinned = pins.read(backend, found.digest) is not None
        options = PullOptions(workers=workers_of(jobs), pinned=pinned, **given)
        result = pull(backend, found.digest, Path(dest), options, meter.expect, meter.advance)
        name = references.parse(reference).name or found.name
        date = locked.date if locked is not None else found.date
        if lock is not None:
            place = store_in(Path(lock), backend.url)
            write_lock(Path(lock), {name: Locked(store=place, digest=found.digest, date=date)})
        return structs.replace(result, name=name, date=date, signed_by=signed_by)

    return Report("karat.pull/1", json_file, quiet=quiet).of(work, report.pull_lines)


def _locked(
    reference: str, lines: dict[str, Locked], rest: Sequence[str], dest: Path, *, update: bool
) -> tuple[str, Locked | None]:
    """What to pull: the line of the lock, if it has one and is not to be moved."""
    from karat.store.references import parse
    from karat.system.command import Command

    wanted = parse(reference)
    line = lines.get(wanted.name or "")
    if line is None or update:
        return reference, None
    if wanted.digest is not None and not line.digest.startswith(wanted.digest):
        said = f"expected {reference} to be what the lock names, found sha256:{line.digest} there"
        raise UsageError(said, next_command=Command("karat", "pull", reference, str(dest), *rest))
    return f"{wanted.name}@sha256:{line.digest}", line
