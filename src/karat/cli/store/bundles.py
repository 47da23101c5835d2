"""`karat pack` and `karat verify`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from karat.cli.output import bytes_line, deliver, json_option, last_line, one_report_each, quiet_option, typed
from karat.cli.store import print_lines
from karat.findings import UsageError

_PACK_EXAMPLES = """
\b
Examples:
  karat pack captures
  karat pack shard-0 shard-1 shard-2 -o packed --json pack.json
  karat pack captures --compression zstd --no-cases --name nightly
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) karat pack captures
"""
_VERIFY_EXAMPLES = """
\b
Examples:
  karat verify captures
  karat verify packed/golden_artifacts_26111504.zip --json verify.json
  karat verify packed                                      zips and SHA256SUMS
  karat verify store:models/nightly s3://bucket/goldens#models/nightly
  karat verify --store s3://bucket/goldens                 the whole store
"""


@click.command(epilog=_PACK_EXAMPLES)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option("-o", "--output", default="packed", show_default=True, metavar="OUT", help="A new or empty folder.")
@click.option(
    "--compression",
    type=click.Choice(["stored", "deflate", "zstd"]),
    default="stored",
    show_default=True,
    help="Floats barely compress; stored is fastest.",
)
@click.option("--level", type=int, metavar="N", help="1 to 9 for deflate (default: 6), 1 to 19 for zstd (default: 3).")
@click.option("--no-cases", is_flag=True, help="No zip per case.")
@click.option("--no-combined", is_flag=True, help="No zip of all cases.")
@click.option(
    "--name", metavar="NAME", help="The combined zip is NAME.zip; by default golden_artifacts_<yymmddHH>.zip, in UTC."
)
@click.option("--at", metavar="TIME", help="The hour in that name, ISO 8601 or seconds (SOURCE_DATE_EPOCH, or now).")
@click.option("--require-program", is_flag=True, help="A case without a program fails.")
@click.option("--keep-going", is_flag=True, help="Pack the rest where cases fail; the exit code stays 1.")
@click.option("--replace", is_flag=True, help="Replace what an earlier pack left in OUT.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Cases at a time; by default one per core.")
@json_option("karat.pack/1")
@quiet_option
def pack(  # noqa: PLR0913 - one parameter per option; those that PackOptions names alike are `given`
    *,
    directories: tuple[str, ...],
    no_cases: bool,
    no_combined: bool,
    name: str | None,
    at: str | None,
    jobs: int | None,
    json_file: str | None,
    quiet: bool,
    **given: Any,
) -> int:
    """Pack captured cases into zips that any machine can verify.

    DIRs are capture directories, of one run or of several shards, flows and jobs. Every case becomes
    OUT/cases/suite/flow/case.zip, all of them OUT/golden_artifacts_<yymmddHH>.zip; both have an index,
    and OUT/SHA256SUMS lists them. The same cases give the same bytes. An incomplete case fails.
    """
    from karat.store.packs import pack as packs

    one_report_each({"--json": json_file})
    if no_cases and no_combined:
        said = "expected at most one of --no-cases and --no-combined, found both: nothing would be left"
        raise UsageError(said, next_command="karat pack --help")
    options = packs.PackOptions(
        combined=None if no_combined else _combined_name(name, at, os.environ),
        cases=not no_cases,
        again=str(typed().plus("--replace")),
        jobs=jobs or 0,
        **given,
    )
    packed = packs.pack(directories, options, None if quiet else bytes_line(sys.stderr, "packing"))
    if json_file is not None:
        deliver(json_file, packs.document(packed))
    if not quiet:
        print_lines(packs.lines(packed) if json_file != "-" else ())
        last_line(packed.findings)
    return int(packed.exit_code)


def _combined_name(name: str | None, at: str | None, environ: Mapping[str, str]) -> str:
    if name is None:
        return f"golden_artifacts_{_hour(at, environ):%y%m%d%H}.zip"
    stem = name.removesuffix(".zip")
    plain = stem and not stem.startswith((".", "-")) and stem not in {"cases", "SHA256SUMS"}
    if not plain or at is not None or set(stem) & set('/\\:*?"<>|') or not stem.isprintable():
        said = "no --at beside it, found both" if plain and at else f"a plain name, found {name!r}"
        raise UsageError(f"--name: expected {said}", next_command="karat pack --help")
    return f"{stem}.zip"


def _hour(at: str | None, environ: Mapping[str, str]) -> datetime:
    for origin, text in (("--at", at), ("SOURCE_DATE_EPOCH", environ.get("SOURCE_DATE_EPOCH"))):
        if text:
            try:
                if text.isdecimal():
                    return datetime.fromtimestamp(int(text), UTC)
                moment = datetime.fromisoformat(text)
            except (ValueError, OverflowError, OSError):
                said = f"{origin}: expected a time as 2026-01-31T04:00Z or in seconds since 1970, found {text!r}"
                raise UsageError(said, next_command="karat pack captures --at 2026-01-31T04:00Z") from None
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    return datetime.now(UTC)


@click.command(epilog=_VERIFY_EXAMPLES)
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option(
    "--store", metavar="URL", help="The store to verify, or of store:NAME; by default KARAT_STORE or karat.toml's."
)
@json_option("karat.verify/1")
@quiet_option
def verify(*, targets: tuple[str, ...], store: str | None, json_file: str | None, quiet: bool) -> int:
    """Verify captured cases without unpacking them.

    A TARGET is a capture directory, a zip, a folder that `karat pack` filled, a reference of a store
    (store:NAME, URL#NAME) or a store; without one, the whole store. Nothing is unpacked. Every tensor,
    program and manifest is checked against its hash; missing and extra files are errors.
    """
    from karat.config import load
    from karat.store import verify as verifying
    from karat.store.backends import store_url

    one_report_each({"--json": json_file})
    url = store_url(store, load(Path.cwd()).store.url, os.environ)
    progress = None if quiet else bytes_line(sys.stderr, "verifying")
    begin = time.perf_counter()
    each = [verifying.verify_target(word, store=url, progress=progress) for word in targets]
    if not targets:
        each.append(verifying.verify_target(url, whole=True, progress=progress))
    result = verifying.VerifyReport(targets=tuple(each), seconds=time.perf_counter() - begin)
    if json_file is not None:
        deliver(json_file, verifying.document(result))
    if not quiet:
        print_lines(verifying.lines(result) if json_file != "-" else ())
        last_line(result.findings)
    return int(result.exit_code)
