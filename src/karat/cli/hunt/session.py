"""What the commands of `karat hunt` share: where reports go, and a hunt until it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from karat.cli.output import Reports, complain, leave_at_once, with_exit_code
from karat.findings import UsageError, exit_code
from karat.hunts.hunt import HuntInterrupted
from karat.hunts.model import HuntReport, json_text
from karat.hunts.report.assemble import findings_of
from karat.hunts.settings import HuntSettings
from karat.report.terminal import print_lines, room_of


def write(out: Reports, report: HuntReport) -> None:
    from karat.hunts.report import html, markdown, terminal

    out.write(
        json=lambda: with_exit_code(report.to_json(), int(exit_code(findings_of(report)))),
        html=lambda: html.render(report),
        markdown=lambda: markdown.render(report),
    )
    out.show(lambda: terminal.report_lines(report, width=room_of(sys.stdout)))


def finish(out: Reports, report: HuntReport) -> int:
    """The same, with the next command; the exit code."""
    write(out, report)
    findings = findings_of(report)
    out.end(findings)
    return int(exit_code(findings))


def run(out: Reports, hunt: str | HuntSettings, **options: Any) -> int:
    """A new hunt, of a file or of settings, or what it would do; the exit code."""
    try:
        return _run(out, hunt, **options)
    except UsageError as error:
        if isinstance(hunt, HuntSettings) and error.next_command.startswith("edit "):  # there is no file
            error.next_command = "karat hunt --help"
        raise


def _run(out: Reports, hunt: str | HuntSettings, *, dry_run: bool, **options: Any) -> int:
    if not dry_run:
        from karat import api

        named = {"settings": hunt} if isinstance(hunt, HuntSettings) else {"hunt_toml": hunt}
        return hunt_until(out, lambda shown: api.hunt(**named, progress=shown, abandoned=leave_at_once, **options))
    from karat.hunts.hunt import plan, plan_lines
    from karat.hunts.hunt_toml import Overrides, apply_overrides, ignore_in_git, journal_path, read, workspace_of

    # Nothing is run, and no journal is made. Clones that it took are kept for the hunt.
    plain = hunt if isinstance(hunt, HuntSettings) else read(Path(hunt))
    file = Path(f"{hunt.name}.toml" if isinstance(hunt, HuntSettings) else hunt)
    place = workspace_of(file, plain)
    said = {name: options[name] for name in Overrides.__struct_fields__ if name in options}
    try:
        found = plan(apply_overrides(plain, Overrides(**said)), place)
    finally:
        ignore_in_git(place)
    out.write(json=lambda: with_exit_code(json_text(found), 0))
    if out.targets["json"] != "-":
        lines = (*plan_lines(found), f"journal: {options['journal'] or journal_path(file, plain)}")
        print_lines((((line, ""),) for line in lines), sys.stdout)
    return 0


def hunt_until(out: Reports, start: Callable[[IO[str] | None], HuntReport]) -> int:
    """Hunt until it ends, one way or another; `start` is given the stream that shows progress. The exit code."""
    if not hasattr(os, "killpg"):
        said = "expected a system with process groups (Linux, macOS), found none; on Windows hunt in WSL"
        raise UsageError(said, next_command="karat help platforms")
    # Whoever stops a service, or closes a terminal, ends a hunt as Ctrl-C does: whole, with nothing left running.
    for sent in (signal.SIGTERM, signal.SIGHUP):
        # Under nohup a closed terminal is nothing to end for.
        if signal.getsignal(sent) is not signal.SIG_IGN:
            signal.signal(sent, signal.default_int_handler)
    try:
        report = start(None if out.quiet else sys.stderr)
    except HuntInterrupted as stop:
        write(out, stop.report)
        complain("the hunt was interrupted; what it measured is kept", stop.report.resume)
        return 130
    return finish(out, report)
