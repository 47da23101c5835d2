"""`karat init` and `karat doctor`: a tree without karat.toml, and a machine that lacks something."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from karat.cli.output import Reports, deliver, report_options, typed
from karat.findings import UsageError
from karat.report.terminal import aligned, say, widths
from karat.report.words import count

_EXAMPLES = """
  karat init --dry-run      what karat would watch, and the file it would write
  karat init
  karat init --dry-run --json -
"""


@click.command(epilog=_EXAMPLES)
@click.option("--dry-run", is_flag=True, help="Print karat.toml instead of writing it.")
@click.option("--force", is_flag=True, help="Replace a karat.toml that is there.")
@report_options("karat.init/1")
def command(*, dry_run: bool, force: bool, out: Reports) -> int:
    """Recognise the goldens of this repository and write a commented karat.toml.

    Knows the trees of Megatron-LM and of PyTorch's dynamo benchmarks, text files with losses as torchtitan keeps them,
    files named like goldens, and tests in pytest. Files are recognised by their content.
    """
    from msgspec import to_builtins

    from karat.config import find
    from karat.report.json import encode
    from karat.setups.layouts import recognise
    from karat.system import git

    here = Path.cwd()
    root = git.find_root(here) or here
    if (there := find(here)) is not None and not dry_run and not (force and there.name == "karat.toml"):
        mended = typed().plus("--dry-run")
        raise UsageError(f"expected no configuration yet, found {there}; nothing was written", next_command=mended)
    start = recognise(root)
    if not dry_run:
        deliver(start.file, start.toml)
    document = {"schema": "karat.init/1", "exit_code": 0, "written": not dry_run, **to_builtins(start)}
    out.write(json=lambda: encode(document))
    if out.shown:
        verb = "would write" if dry_run else "wrote"
        say(f"{verb} {start.file}: karat watches {count(start.goldens, 'golden')}")
        rows = [("layout", "such as", "files"), *((one.name, one.example, f"{one.goldens:,}") for one in start.layouts)]
        for row in rows:
            say(aligned(row, widths(rows)))
        if dry_run:
            deliver("-", f"\n{start.toml}")
        say(
            f"next: {'karat init' if dry_run else 'karat audit' if start.goldens else 'pytest --karat-update'}",
            sys.stderr,
        )
    return 0


_STYLES = {"ok": "green", "missing": "dim", "warn": "yellow", "fail": "bold red", "unverified": "magenta"}
_DOCTOR_EXAMPLES = """
  karat doctor
  karat doctor --offline --json -
"""


@click.command(epilog=_DOCTOR_EXAMPLES)
@click.option("--offline", is_flag=True, help="Ask no server whether a token is valid.")
@report_options("karat.doctor/1")
def doctor(*, offline: bool, out: Reports) -> int:
    """Check what karat needs here, and show the fix for whatever is missing.

    It looks at git, the clone, karat.toml, tokens, extras, containers, Ray and Slurm.

    A token is never shown, and is sent only to a server that karat.toml, CI or the remote origin names. Parts that are
    `missing` matter only if you use them.
    """
    from msgspec import to_builtins

    from karat.report.json import encode
    from karat.report.terminal import COMMAND, Line
    from karat.setups.checkup import examine

    found = examine(Path.cwd(), os.environ, offline=offline)
    code = int(found.exit_code)
    # A fix may be a Command, which no encoder knows.
    out.write(json=lambda: encode({"schema": "karat.doctor/1", "exit_code": code, **to_builtins(found, enc_hook=str)}))
    wide = max(len(check.name) for check in found.checks)
    lines: list[Line] = []
    for check in found.checks:
        lines.append(((f"{check.state:<11}", _STYLES[check.state]), (f"{check.name:<{wide}}  {check.says}", "")))
        if check.fix and check.state != "ok":
            lines.append(((f"{'':{wide + 13}}{check.fix}", COMMAND),))
    out.show(lambda: lines)
    graver = [check for state in ("fail", "unverified") for check in found.checks if check.state == state]
    if graver:
        say(f"next: {graver[0].fix}", sys.stderr)
    return code
