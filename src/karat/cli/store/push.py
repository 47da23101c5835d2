"""`karat push`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from karat.cli.output import one_report_each
from karat.cli.store import (
    Meter,
    Report,
    jobs_option,
    json_option,
    notice,
    quiet_option,
    settings_of,
    store_option,
    workers_of,
)
from karat.findings import KaratError

if TYPE_CHECKING:
    from karat.bundles.places import Place
    from karat.store.backends import Backend
    from karat.store.backends.lifecycle import Applied
    from karat.store.push import Pushed, PushOptions
    from karat.system.command import Command

_EXAMPLES = """
\b
Examples:
  karat push captures models/nightly
  karat push captures models/nightly --store s3://bucket/goldens --keep 30
  karat push packed/golden_artifacts_26111504.zip models/release-1.2 --pin 'release 1.2'
  karat push store:models/nightly models/copy --store /mnt/goldens
"""


@click.command(epilog=_EXAMPLES)
@click.argument("place")
@click.argument("name")
@store_option
@click.option(
    "--keep", type=click.IntRange(1, 36500), metavar="DAYS",
    help="How long the reference is kept; by default [store].retention, 90.",
)  # fmt: skip
@click.option("--pin", metavar="WHY", help="Keep it for good, and say why.")
@click.option(
    "--lifecycle", is_flag=True,
    help="Also write the bucket's own rule that deletes what is old in expiring/.",
)  # fmt: skip
@click.option(
    "--verify-existing", is_flag=True,
    help="Read objects that are there already, and replace those that are damaged.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be sent, send nothing.")
@jobs_option
@json_option("karat.push/1")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *, place: str, name: str, store: str | None, keep: int | None, pin: str | None, lifecycle: bool,
    verify_existing: bool, dry_run: bool, jobs: int | None, json_file: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Put captured cases into a store, under a name.

    PLACE is a capture directory, a zip, or store:REFERENCE; NAME is such as models/nightly. Every case is
    verified first. Only what the store lacks is sent, and the name means the new cases once all of them
    are there.
    """
    from karat.store.backends import open_backend  # noqa: PLC0415 - help must be quick
    from karat.store.place import open_word  # noqa: PLC0415
    from karat.store.push import PushOptions  # noqa: PLC0415
    from karat.store.references import check_name, ci_of  # noqa: PLC0415

    one_report_each({"--json": json_file})
    check_name(name)
    url, settings = settings_of(store)
    options = PushOptions(
        retention=settings.retention, keep=keep, pin=pin, verify_existing=verify_existing,
        dry_run=dry_run, workers=workers_of(jobs), ci=ci_of(os.environ), again=str(push_command(place, name, pin)),
    )  # fmt: skip
    report = Report("karat.push/1", json_file, quiet=quiet)
    # `store:` means the configured store, not the one that is pushed to.
    try:
        opened = open_word(place, store=settings_of(None)[0])
    except KaratError as error:
        return report.failed(error)
    try:
        return _push(
            opened, open_backend(url), name, options, report, lifecycle=lifecycle, quiet=quiet
        )
    finally:
        opened.close()


def push_command(place: str, name: str, pin: str | None) -> Command:
    """The same push again."""
    from karat.system.command import Command  # noqa: PLC0415 - help must be quick

    return Command("karat", "push", place, name, *(() if pin is None else ("--pin", pin)))


def _push(  # noqa: PLR0913 - what there is to know
    place: Place, backend: Backend, name: str, options: PushOptions, report: Report, *,
    lifecycle: bool, quiet: bool,
) -> int:  # fmt: skip
    from karat.cli.output import bytes_bar  # noqa: PLC0415
    from karat.store import report as telling  # noqa: PLC0415
    from karat.store.backends import lifecycle as rules  # noqa: PLC0415
    from karat.store.push import Watchers, gather, objections, push  # noqa: PLC0415  # noqa: PLC0415

    refused = objections(place, None if quiet else bytes_bar(sys.stderr, "verifying"))
    if refused:
        return report.refused(refused)
    hashing, sending = Meter("hashing", quiet=quiet), Meter("sending", quiet=quiet)
    hashing.expect(sum(place.files().values()))
    watchers = Watchers(
        hashed=hashing.advance, sending=sending.expect, sent=sending.advance, notice=notice(quiet=quiet)
    )  # fmt: skip
    applied: list[Applied] = []

    def work() -> Pushed:
        if lifecycle and not options.dry_run:
            applied.append(rules.apply(backend, options.keep or options.retention))
        return push(backend, gather(place), name, options, watchers)

    def lines(told: Pushed) -> Iterator[str]:
        return telling.push_lines(told, applied[0] if applied else None)

    return report.of(work, lines)
