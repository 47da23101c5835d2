"""`karat pack` and `karat verify`."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from karat.cli.output import Reports, bytes_line, report_options
from karat.cli.store import settings_of
from karat.findings import UsageError

_PACK_EXAMPLES = """
  karat pack captures
  karat pack shard-0 shard-1 shard-2 -o packed --json pack.json
  karat pack captures --compression zstd --name nightly
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) karat pack captures
"""
_VERIFY_EXAMPLES = """
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
@click.option(
    "--name",
    metavar="NAME",
    help="The combined zip is NAME.zip; by default golden_artifacts_<yymmddHH>.zip, in UTC (SOURCE_DATE_EPOCH, or now).",
)
@click.option("--require-program", is_flag=True, help="A case without a program fails.")
@click.option("--keep-going", is_flag=True, help="Pack the rest where cases fail; the exit code stays 1.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Cases at a time; by default one per core.")
@report_options("karat.pack/1")
def pack(*, directories: tuple[str, ...], name: str | None, jobs: int | None, out: Reports, **given: Any) -> int:
    """Pack captured cases into zips that any machine can verify.

    DIRs are capture directories, of one run or of several shards, flows and jobs. Every case becomes
    OUT/cases/suite/flow/case.zip, all of them OUT/golden_artifacts_<yymmddHH>.zip; both have an index,
    and OUT/SHA256SUMS lists them. The same cases give the same bytes. An incomplete case fails.
    """
    from karat.store import pack as packs

    if name is None:
        from karat.system.dates import build_time

        stem = f"golden_artifacts_{build_time():%y%m%d%H}"
    else:
        stem = name.removesuffix(".zip")
        plain = stem and not stem.startswith((".", "-")) and stem not in {"cases", "SHA256SUMS"}
        if not plain or set(stem) & set('/\\:*?"<>|') or not stem.isprintable():
            raise UsageError(f"--name: expected a plain name, found {name!r}", next_command="karat pack --help")
    # The other options are named as PackOptions names them.
    options = packs.PackOptions(combined=f"{stem}.zip", jobs=jobs or 0, **given)
    packed = packs.pack(directories, options, None if out.quiet else bytes_line(sys.stderr, "packing"))
    return out.finish(packs.SCHEMA, packed, lambda: packs.lines(packed))


@click.command(epilog=_VERIFY_EXAMPLES)
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option(
    "--store", metavar="URL", help="The store to verify, or of store:NAME; by default KARAT_STORE or karat.toml's."
)
@report_options("karat.verify/1")
def verify(*, targets: tuple[str, ...], store: str | None, out: Reports) -> int:
    """Verify captured cases without unpacking them.

    A TARGET is a capture directory, a zip, a folder that `karat pack` filled, a reference of a store
    (store:NAME, URL#NAME) or a store; without one, the whole store. Nothing is unpacked. Every tensor,
    program and manifest is checked against its hash; missing and extra files are errors.
    """
    from karat.store import verify as verifying

    url = settings_of(store)[0]
    progress = None if out.quiet else bytes_line(sys.stderr, "verifying")
    begin = time.perf_counter()
    each = [verifying.verify_target(word, store=url, progress=progress) for word in targets]
    if not targets:
        each.append(verifying.verify_target(url, whole=True, progress=progress))
    result = verifying.VerifyReport(targets=tuple(each), seconds=time.perf_counter() - begin)
    out.write(json=lambda: verifying.document(result))
    out.show(lambda: verifying.lines(result))
    out.end(result.findings)
    return int(result.exit_code)
