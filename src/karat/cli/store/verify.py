"""`karat verify`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.output import deliver, last_line, one_report_each

if TYPE_CHECKING:
    from karat.store.verify import VerifyReport

_EXAMPLES = """
\b
Examples:
  karat verify captures
  karat verify packed/golden_artifacts_26111504.zip --json verify.json
  karat verify packed                                      zips and SHA256SUMS
  karat verify store:models/nightly s3://bucket/goldens#models/nightly
  karat verify --store s3://bucket/goldens                 the whole store
"""


@click.command(epilog=_EXAMPLES)
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option(
    "--store", metavar="URL",
    help="The store that store:NAME means, or to verify; by default KARAT_STORE or karat.toml's.",
)  # fmt: skip
@click.option(
    "--json", "json_file", metavar="F", help="Write the report, schema karat.verify/1; - is stdout."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the requested outputs.")
def command(
    *, targets: tuple[str, ...], store: str | None, json_file: str | None, quiet: bool
) -> int:
    """Verify captured cases where they lie.

    A TARGET is a capture directory, a zip, a folder that `karat pack` filled, a reference of a store
    (store:NAME, URL#NAME) or a store; without one, the whole store. Nothing is unpacked. Every tensor,
    program and manifest is held against its hash, and nothing may be missing or too much.
    """
    from karat.cli.output import bytes_bar  # noqa: PLC0415 - help must be quick
    from karat.config import load  # noqa: PLC0415
    from karat.store.backends import store_url  # noqa: PLC0415
    from karat.store.verify import (  # noqa: PLC0415
        VerifyReport,
        document,
        verify_target,
    )

    one_report_each({"--json": json_file})
    url = store_url(store, load(Path.cwd()).store.url, os.environ)
    progress = None if quiet else bytes_bar(sys.stderr, "verifying")
    begin = time.perf_counter()
    each = [verify_target(word, store=url, progress=progress) for word in targets]
    if not targets:
        each.append(verify_target(url, whole=True, progress=progress))
    told = VerifyReport(targets=tuple(each), seconds=time.perf_counter() - begin)
    if json_file is not None:
        deliver(json_file, document(told))
    if not quiet:
        _report(told, text=json_file != "-")
    return int(told.exit_code)


def _report(told: VerifyReport, *, text: bool) -> None:
    from karat.report.words import printable  # noqa: PLC0415
    from karat.store.verify import lines  # noqa: PLC0415

    for line in lines(told) if text else ():
        print(printable(line))
    last_line(told.findings)
