"""What the commands of `karat hunt` share: reports, a hunt until it ends, and the dry run."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from karat.cli.output import complain, deliver, last_line, leave_at_once, one_report_each
from karat.findings import exit_code
from karat.hunts.driver import INTERRUPTED, mark_stopped
from karat.hunts.hunt import hunt_into, plan, plan_lines
from karat.hunts.hunt_toml import ignore_in_git
from karat.hunts.journal.journal import Journal
from karat.hunts.model import HuntReport
from karat.hunts.report.assemble import build_report
from karat.hunts.report.findings import findings_of
from karat.hunts.report.live import Listener, listener_for
from karat.hunts.settings import HuntSettings
from karat.hunts.timelines.timeline import Workspace
from karat.report.terminal import print_lines, room_of


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """Where reports go, besides the terminal."""

    json: str | None = None
    html: str | None = None
    markdown: str | None = None
    quiet: bool = False

    def check(self) -> None:
        """Two reports in one place would be neither."""
        one_report_each({"--json": self.json, "--html": self.html, "--markdown": self.markdown})

    def write(self, report: HuntReport) -> None:
        """Every report that was asked for."""
        if self.json is not None:
            from karat.hunts.model import report_json

            deliver(self.json, report_json(report))
        if self.html is not None:
            from karat.hunts.report import html as report_html

            deliver(self.html, report_html.render(report))
        if self.markdown is not None:
            from karat.hunts.report import markdown as report_markdown

            deliver(self.markdown, report_markdown.render(report))
        if not self.quiet and "-" not in {self.json, self.html, self.markdown}:
            from karat.hunts.report.terminal import report_lines

            print_lines(report_lines(report, width=room_of(sys.stdout)), sys.stdout)

    def finish(self, report: HuntReport) -> int:
        """The same, with the next command; the exit code."""
        self.write(report)
        findings = findings_of(report)
        if not self.quiet:
            last_line(findings)
        return int(exit_code(findings))


def hunt(settings: HuntSettings, place: Workspace, journal: Journal, reports: Reports) -> int:
    """Hunt into the journal until it ends, one way or another; the exit code."""
    reports.check()
    listener: Listener = Listener() if reports.quiet else listener_for(sys.stderr, os.environ, settings)
    # Whoever stops a service, or closes a terminal, ends a hunt as Ctrl-C does: whole, with nothing left running.
    for sent in (signal.SIGTERM, signal.SIGHUP):
        # Under nohup a closed terminal is nothing to end for.
        if signal.getsignal(sent) is not signal.SIG_IGN:
            signal.signal(sent, signal.default_int_handler)
    try:
        report = hunt_into(journal, settings, place, listener, abandoned=leave_at_once)
    except KeyboardInterrupt:
        if journal.facts()["state"] == "running":  # before anything was driven
            mark_stopped(journal, INTERRUPTED)
        report = build_report(journal)
        reports.write(report)
        complain("the hunt was interrupted; what it measured is kept", report.resume)
        return 130
    return reports.finish(report)


def show(settings: HuntSettings, place: Workspace, journal: Path, json_file: str | None) -> int:
    """Print what a hunt would do; nothing is run, and no journal is made. Clones that it took are kept for the hunt."""
    try:
        found = plan(settings, place)
    finally:
        ignore_in_git(place)
    if json_file is not None:
        deliver(json_file, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if json_file != "-":
        print_lines((((line, ""),) for line in plan_lines(found)), sys.stdout)
        print_lines([((f"journal: {journal}", ""),)], sys.stdout)
    return 0
