"""What the commands of `karat hunt` share: where reports go, and a hunt until it ends."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec

from karat.cli.output import complain, deliver, last_line, leave_at_once, one_report_each
from karat.findings import exit_code
from karat.hunts.hunt import HuntInterrupted
from karat.hunts.model import HuntReport, json_text
from karat.hunts.report.findings import findings_of
from karat.hunts.settings import HuntSettings
from karat.report.terminal import print_lines, room_of


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """Where reports go, besides the terminal."""

    json: str | None = None
    html: str | None = None
    markdown: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        one_report_each({"--json": self.json, "--html": self.html, "--markdown": self.markdown})

    def write(self, report: HuntReport) -> None:
        """Every report that was asked for."""
        if self.json is not None:
            deliver(self.json, report.to_json())
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

    def run(self, hunt: str | HuntSettings, *, dry_run: bool, **options: Any) -> int:
        """A new hunt, of a file or of settings, or what it would do; the exit code."""
        if not dry_run or options["resume"]:
            from karat import api

            named = {"settings": hunt} if isinstance(hunt, HuntSettings) else {"hunt_toml": hunt}
            return self.hunt(lambda shown: api.hunt(**named, progress=shown, abandoned=leave_at_once, **options))
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
        if self.json is not None:
            deliver(self.json, json_text(found))
        if self.json != "-":
            lines = (*plan_lines(found), f"journal: {options['journal'] or journal_path(file, plain)}")
            print_lines((((line, ""),) for line in lines), sys.stdout)
        return 0

    def hunt(self, start: Callable[[IO[str] | None], HuntReport]) -> int:
        """Hunt until it ends, one way or another; `start` is given the stream that shows progress. The exit code."""
        # Whoever stops a service, or closes a terminal, ends a hunt as Ctrl-C does: whole, with nothing left running.
        for sent in (signal.SIGTERM, signal.SIGHUP):
            # Under nohup a closed terminal is nothing to end for.
            if signal.getsignal(sent) is not signal.SIG_IGN:
                signal.signal(sent, signal.default_int_handler)
        try:
            report = start(None if self.quiet else sys.stderr)
        except HuntInterrupted as stop:
            self.write(stop.report)
            complain("the hunt was interrupted; what it measured is kept", stop.report.resume)
            return 130
        return self.finish(report)
