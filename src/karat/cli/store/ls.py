"""`karat ls`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from karat.cli.output import one_report_each
from karat.cli.store import Report, json_option, settings_of, store_option
from karat.findings import CannotVerify, UsageError

if TYPE_CHECKING:
    from karat.store.listing import StoreListing

_EXAMPLES = """
\b
Examples:
  karat ls
  karat ls models/nightly --store s3://bucket/goldens
  karat ls models/nightly@2026-11-14 --cases
  karat ls --json -
"""


@click.command(epilog=_EXAMPLES)
@click.argument("reference", metavar="[REF]", required=False)
@store_option
@click.option("--cases", is_flag=True, help="The cases of one snapshot.")
@json_option("karat.ls/1")
def command(*, reference: str | None, store: str | None, cases: bool, json_file: str | None) -> int:
    """List what a store holds: names, dates, digests, sizes, expiry and pins.

    Without REF, the newest of every name; with a name, all of it; with NAME@… or sha256:…, that one.
    """
    from karat.store import listing, report  # noqa: PLC0415 - help must be quick
    from karat.store.backends import open_store  # noqa: PLC0415

    one_report_each({"--json": json_file})
    if cases and reference is None:
        raise UsageError("--cases: expected REF beside it, found none", next_command="karat ls")
    url = settings_of(store)[0]

    errors: list[CannotVerify] = []

    def work() -> StoreListing:
        backend = open_store(url)
        if cases and reference is not None:
            return listing.list_cases(backend, reference)
        told, errors[:] = (
            listing.list_names(backend)
            if reference is None
            else listing.list_entries(backend, reference)
        )
        return told

    return Report("karat.ls/1", json_file, quiet=False).of(work, report.ls_lines, errors)
