"""`karat hunt run --dry-run`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from karat.cli.output import deliver
from karat.hunt.planning import lines, plan
from karat.hunt.settings import HuntSettings
from karat.hunt.timeline import Place
from karat.hunt.whereabouts import keep_out_of_git
from karat.report.terminal import print_lines


def show(settings: HuntSettings, place: Place, journal: Path, json_file: str | None) -> int:
    """Print what a hunt would do; nothing is run, and no journal is made. Clones that it took are kept for the hunt."""
    try:
        found = plan(settings, place)
    finally:
        keep_out_of_git(place)
    if json_file is not None:
        deliver(json_file, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if json_file != "-":
        print_lines((((line, ""),) for line in lines(found)), sys.stdout)
        print_lines([((f"journal: {journal}", ""),)], sys.stdout)
    return 0
