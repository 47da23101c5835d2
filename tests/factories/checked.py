"""Results, checked."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from karat.checks.check import CheckOptions, check
from karat.checks.lookup import Where
from karat.checks.report import Checked, CheckReport
from karat.goldens.paths import DEFAULT_GLOBS
from karat.settings import CheckSettings

TODAY = date(2026, 5, 1)
TABLE = "name,accuracy,graph_breaks\n\n\n\na,pass,3\n\n\n\nb,pass,11\n\n\n\nc,fail_to_run,3\n"


def options(cwd: Path, **sets: Any) -> CheckOptions:
    said = {name: sets.pop(name) for name in CheckSettings.__struct_fields__ if name in sets}
    where = Where(cwd=cwd, globs=DEFAULT_GLOBS, settings=replace(sets.pop("settings", CheckSettings()), **said))
    return CheckOptions(where=where, today=TODAY, **sets)


def run(cwd: Path, golden: str, actual: str, suffix: str = "csv", **sets: Any) -> CheckReport:
    (cwd / f"golden.{suffix}").write_text(golden)
    (cwd / f"actual.{suffix}").write_text(actual)
    return check([f"actual.{suffix}"], f"golden.{suffix}", options(cwd, **sets))


def only(report: CheckReport) -> Checked:
    assert len(report.checks) == 1
    return report.checks[0]


def outcomes(report: CheckReport) -> dict[str, str]:
    return {r.metric: r.outcome.value for r in only(report).results}


def kinds(report: CheckReport) -> set[str]:
    return {f.kind for f in report.all_findings()}
