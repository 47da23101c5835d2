"""Golden probe: a run's result compared with a golden as `karat check` does it: 0 within its tolerances, 1 outside.

What could not be verified is neither: `Unverified`, and the point is broken, never good.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from math import isfinite
from pathlib import Path, PurePosixPath

from karat.checks.check import CheckOptions, check
from karat.checks.lookup import Where
from karat.checks.report import CheckReport
from karat.config import load
from karat.findings import ExitCode, KaratError
from karat.hunts.probe.metrics import NoValue, RunOutput, Unverified, file_of
from karat.hunts.settings import MetricSettings

_UNKNOWN = {"cannot-verify", "missing-actual", "missing-golden", "nothing-compared"}


def compare_with_golden(metric: MetricSettings, run: RunOutput, root: Path) -> tuple[float, str]:
    """1 outside the golden's tolerances, 0 within, and a sentence on the worst value."""
    data = file_of(metric, run)
    if data is None:
        raise NoValue(f"no value for {metric.name}: the run left no {metric.file}")
    with tempfile.TemporaryDirectory(prefix="karat-hunt-") as folder:
        result = Path(folder) / PurePosixPath(metric.file.replace("*", "result")).name
        result.write_bytes(data)
        try:
            report = check([str(result)], str(root / (metric.golden or "")), _options(root))
        except KaratError as error:
            raise Unverified(f"{metric.name}: {error}") from error
    # Which value is furthest off, as a share of what it may be; empty where that is not known.
    results = [result for checked in report.checks for result in checked.results]
    used = [(r.used, r.metric) for r in results if r.used is not None and isfinite(r.used)]
    worst = "{1} used {0:.3g} times its tolerance".format(*max(used)) if used else ""
    return verdict(metric, report), worst


def verdict(metric: MetricSettings, report: CheckReport) -> float:
    """1 outside, 0 within; where anything could not be verified, or nothing was, neither."""
    unknown = next((c for c in report.checks if c.outcome.value in _UNKNOWN), None)
    if unknown is not None or not report.checks:
        said = next((f.message for f in report.all_findings()), "nothing was compared")
        raise Unverified(f"{metric.name}: {said}")
    return 1.0 if report.exit_code is ExitCode.FAIL else 0.0


def _options(root: Path) -> CheckOptions:
    """What karat.toml says where hunt.toml lies."""
    config = load(root)
    tables = config.refresh.tables
    globs, exclude, cases = tuple(config.paths), tuple(config.exclude), tuple(config.cases)
    return CheckOptions(
        where=Where(cwd=root, globs=globs, exclude=exclude, cases=cases, settings=config.check),
        today=dt.datetime.now(dt.UTC).date(),
        rules=config.rule_book(),
        status=tuple(config.status),
        record=config.record,
        exemptions=tuple(config.exempt),
        fill=tables.fill if tables else {},
        improved=config.check.improved,
        unknown=config.check.unknown,
    )
