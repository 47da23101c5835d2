"""`karat gc`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.output import one_report_each
from karat.cli.store import (
    Report,
    jobs_option,
    json_option,
    quiet_option,
    settings_of,
    store_option,
    workers_of,
)

if TYPE_CHECKING:
    from karat.store.gc import GcResult

_EXAMPLES = """
\b
Examples:
  karat gc --dry-run
  karat gc --store s3://bucket/goldens --lock bundles.lock.json
  karat gc --retention 30 --json gc.json
"""


@click.command(epilog=_EXAMPLES)
@store_option
@click.option("--dry-run", is_flag=True, help="Say what would go and why, delete nothing.")
@click.option(
    "--lock", "locks", multiple=True, metavar="FILE",
    help="Never take what this lock file names; added to [store].locks. Repeatable.",
)  # fmt: skip
@click.option(
    "--retention", type=click.IntRange(1, 36500), metavar="DAYS",
    help="How long references are kept whose push did not say; by default what held then.",
)  # fmt: skip
@click.option(
    "--grace", type=click.FloatRange(0), default=24.0, show_default=True, metavar="HOURS",
    help="How long an object stays that nothing needs.",
)  # fmt: skip
@click.option(
    "--expire-newest", is_flag=True, help="Also forget the newest reference of a name once it expired."
)  # fmt: skip
@jobs_option
@json_option("karat.gc/1")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *, store: str | None, dry_run: bool, locks: tuple[str, ...], retention: int | None, grace: float,
    expire_newest: bool, jobs: int | None, json_file: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Forget references that have expired, and delete what nothing needs any more.

    What a pin, a lock file, a living reference or a push at work needs is never deleted. If anything of
    that cannot be read, nothing is deleted at all.
    """
    from karat.store import report  # noqa: PLC0415 - help must be quick
    from karat.store.backends import open_store  # noqa: PLC0415
    from karat.store.gc import GcOptions, collect  # noqa: PLC0415

    one_report_each({"--json": json_file})
    url, settings = settings_of(store)
    options = GcOptions(
        dry_run=dry_run, locks=_lock_files(locks, settings.locks), retention=retention, grace=grace,
        expire_newest=expire_newest, workers=workers_of(jobs),
    )  # fmt: skip

    def work() -> GcResult:
        return collect(open_store(url), options)

    return Report("karat.gc/1", json_file, quiet=quiet).of(work, report.gc_lines)


def _lock_files(said: Sequence[str], globs: Sequence[str]) -> tuple[Path, ...]:
    """Files that were named must be there; what globs of the configuration find is taken as well."""
    from karat.config import find  # noqa: PLC0415

    file = find(Path.cwd())
    root = file.parent if file is not None else Path.cwd()
    found = [path for glob in globs for path in sorted(root.glob(glob)) if path.is_file()]
    return tuple(dict.fromkeys([*map(Path, said), *found]))
