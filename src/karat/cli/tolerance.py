"""`karat tolerance`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.output import deliver
from karat.findings import CannotVerify, ExitCode, Finding, Severity, UsageError, exit_code

if TYPE_CHECKING:
    from karat.config import Config
    from karat.goldens.shapes import Series, Steps
    from karat.runs.repeats import Repeat
    from karat.runs.tolerance import Recommendation, Tolerances

_EXAMPLES = """
\b
Examples:
  karat tolerance run1 run2 run3 run4 run5
  karat tolerance --golden golden_values.json       from the samples that `karat record` kept
  karat tolerance --golden golden_values.json --rate 0.01 --json -
"""


@click.command(epilog=_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--golden", metavar="G", help="The golden; its samples count as runs. Else the first RUN is it."
)
@click.option(
    "--rate", type=click.FloatRange(0, 0.5, min_open=True), default=0.01, show_default=True,
    metavar="P", help="False alarms per checked run that you would put up with.",
)  # fmt: skip
@click.option(
    "--outliers", type=click.IntRange(min=0), default=0, show_default=True, metavar="K",
    help="Steps per run that may be out of tolerance.",
)  # fmt: skip
@click.option(
    "--metric", "metrics", multiple=True, metavar="GLOB", help="Only these metrics. Repeatable."
)
@click.option(
    "--json", "json_file", metavar="F",
    help="Write the report, schema karat.tolerance/1; - is stdout.",
)  # fmt: skip
@click.option(
    "--toml", "toml_file", metavar="F", help="Write only the rules for karat.toml; - is stdout."
)
@click.option(
    "--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrules karat.toml."
)
def command(  # noqa: PLR0913 - one parameter per option
    *, runs: tuple[str, ...], golden: str | None, rate: float, outliers: int,
    metrics: tuple[str, ...], json_file: str | None, toml_file: str | None, preset: str | None,
) -> int:  # fmt: skip
    """Recommend tolerances from repeated runs.

    RUNs are repeats of one test, in any form that `karat record` reads. Prints a rule per metric,
    how often it would raise a false alarm, and the smallest change it would still catch.
    """
    from karat.cli.output import one_report_each  # noqa: PLC0415
    from karat.config import load  # noqa: PLC0415 - help must be quick

    one_report_each({"--json": json_file, "--toml": toml_file})
    config = load(Path.cwd(), preset=preset)
    found = _Repeats(config, golden, runs).tolerances(rate, outliers, metrics)
    from karat.runs.tolerance import document, snippet  # noqa: PLC0415

    if json_file is not None:
        deliver(json_file, document(found))
    if toml_file is not None:
        deliver(toml_file, snippet(found))
    if "-" not in {json_file, toml_file}:
        _show(found)
    code = exit_code(found.findings)
    _last_line(found, code)
    return int(code)


def _show(found: Tolerances) -> None:
    from karat.report.words import printable  # noqa: PLC0415
    from karat.runs.tolerance import lines, snippet  # noqa: PLC0415

    for line in lines(found):
        print(printable(line))
    print("\n# for karat.toml\n" + "\n".join(map(printable, snippet(found).splitlines())))


def _last_line(found: Tolerances, code: ExitCode) -> None:
    from karat.runs.tolerance import runs_needed  # noqa: PLC0415

    golden = shlex.quote(found.golden or "GOLDEN")
    if code:
        told = f"karat record RUN… -o {golden}  # run the test again; the repeats must be whole"
        print(f"next: {told}", file=sys.stderr)
    elif not found.shown:
        more = runs_needed(found.rate) - len(found.runs)
        print(f"next: karat record RUN… -o {golden}  # {more:,} more runs", file=sys.stderr)


class _Repeats:
    """The repeats that were named, and the golden that they are measured against."""

    def __init__(self, config: Config, golden: str | None, runs: tuple[str, ...]) -> None:
        from karat.runs.repeats import Samples, copies, distinct, read_samples, samples_path  # noqa: PLC0415 - brings numpy  # noqa: PLC0415

        self.config = config
        self.golden_path = golden
        self.findings: list[Finding] = []
        self.repeats: list[Repeat] = []
        self.series: list[Series] = []
        kept = read_samples(samples_path(Path(golden))) if golden is not None else Samples()
        self.golden = _golden(golden) if golden is not None else None
        for sampled, series in zip(kept.runs, kept.series, strict=True):
            self._add(sampled.name, sampled.sha256, series)
        self.kept = set(kept.runs)
        for path in distinct(runs):
            self._read(str(path))
        self.findings += copies(self.repeats)
        if len(self.series) < 2:
            raise self._too_few(runs)
        self.reference, self.golden_is_run = self._reference()

    @property
    def names(self) -> list[str]:
        """What the repeats are called."""
        return [repeat.path for repeat in self.repeats]

    def _add(self, name: str, sha256: str, series: Series) -> None:
        from karat.goldens.shapes import Reading  # noqa: PLC0415 - brings numpy
        from karat.runs.repeats import Repeat  # noqa: PLC0415

        self.repeats.append(Repeat(path=name, reading=Reading(series), sha256=sha256))
        self.series.append(series)

    def _read(self, name: str) -> None:
        from karat.goldens.shapes import Series  # noqa: PLC0415 - brings numpy
        from karat.runs.curves import settings_like  # noqa: PLC0415
        from karat.runs.read import read_run  # noqa: PLC0415
        from karat.runs.repeats import SampledRun, fingerprint  # noqa: PLC0415

        reading = read_run(Path(name), settings_like(self.golden, self.config.record))
        if reading.golden is None:
            told = reading.findings[0]
            raise CannotVerify(
                f"expected a run in {name}, but: {told.message}",
                next_command=told.next or f"ls -ld {shlex.quote(name)}",
            )
        if not isinstance(reading.golden, Series):
            raise UsageError(
                f"expected a series in {name}, found a {reading.golden.shape}; repeats are of curves",
                next_command="karat tolerance --help",
            )
        self.findings += reading.findings
        sha256 = fingerprint(Path(name))
        if SampledRun(name=Path(name).name, sha256=sha256) in self.kept:
            self.findings.append(_kept_already(name))
        else:
            self._add(name, sha256, reading.golden)

    def _too_few(self, runs: tuple[str, ...]) -> UsageError:
        found = len(self.series)
        where = f"found {found} (in {', '.join(runs) or 'no RUN'}"
        if self.golden_path is not None:
            where += f" and the samples of {self.golden_path}"
        return UsageError(
            f"expected at least 2 repeats of one test, {where})",
            next_command="karat record RUN1 RUN2 RUN3 -o GOLDEN",
        )

    def _reference(self) -> tuple[Series, bool]:
        """The golden; where its curves are those of a run, that run itself."""
        if self.golden is None:
            return self.series[0], True
        for series in self.series:
            if _same_curves(series, self.golden):
                return series, True
        return self.golden, False

    def tolerances(self, rate: float, outliers: int, metrics: tuple[str, ...]) -> Tolerances:
        """The recommendations, and what is wrong with the repeats."""
        from karat.runs.repeats import disagreements  # noqa: PLC0415
        from karat.runs.tolerance import Tolerances, recommend  # noqa: PLC0415

        found = recommend(
            self.series, self.reference, rate=rate, outliers=outliers, windows=self._window
        )
        wanted = [one for one in found if _any_glob(one.metric, metrics)]
        findings = [*self.findings, *disagreements(self.names, self.series)]
        findings = [f for f in findings if not f.metric or _any_glob(f.metric, metrics)]
        if not wanted:
            findings.append(_nothing(self.series))
        elif left := [n for n in self._left_out(found) if _any_glob(n, metrics)]:
            findings.append(_no_rule(left))
        return Tolerances(
            runs=tuple(self.names),
            golden=self.golden_path,
            golden_is_run=self.golden_is_run,
            rate=rate,
            metrics=tuple(wanted),
            findings=tuple(findings),
        )

    def _left_out(self, found: list[Recommendation]) -> list[str]:
        """Names that the golden or a run has, and that no rule was made for."""
        from karat.runs.curves import names_in  # noqa: PLC0415

        names = [name for one in (self.reference, *self.series) for name in names_in(one)]
        return sorted(set(names) - {one.metric for one in found})

    def _window(self, metric: str, steps: Steps) -> tuple[int, int] | None:
        """The steps whose median `karat check` would take of a timing."""
        from karat.compare.gate.tolerance import mode_of, window_of  # noqa: PLC0415

        rule = self.config.rule_book().rule_for(metric, self.golden_path or "")
        by_median = mode_of(rule) == "median" or (rule.check is None and rule.steady)
        return window_of(steps, rule) if by_median else None


def _golden(path: str) -> Series:
    from karat.goldens import formats  # noqa: PLC0415 - brings numpy
    from karat.goldens.shapes import Series  # noqa: PLC0415

    try:
        golden = formats.read(Path(path).read_bytes()).golden
    except OSError as error:
        raise CannotVerify(
            f"expected to read the golden {path}, but: {error.strerror}",
            next_command=f"ls -ld {shlex.quote(path)}",
        ) from error
    if not isinstance(golden, Series):
        raise UsageError(
            f"expected a series in {path}, found {f'a {golden.shape}' if golden else 'no golden'}",
            next_command="karat tolerance --help",
        )
    return golden


def _same_curves(series: Series, golden: Series) -> bool:
    import numpy as np  # noqa: PLC0415

    return series.metrics.keys() == golden.metrics.keys() and all(
        np.array_equal(metric.steps, golden.metrics[name].steps)
        and np.array_equal(metric.values, golden.metrics[name].values, equal_nan=True)
        for name, metric in series.metrics.items()
    )


def _any_glob(name: str, globs: tuple[str, ...]) -> bool:
    from fnmatch import fnmatchcase  # noqa: PLC0415

    return not globs or any(fnmatchcase(name, glob) for glob in globs)


def _kept_already(name: str) -> Finding:
    return Finding(
        kind="claimed-twice",
        severity=Severity.INFO,
        message=f"{name} is among the golden's samples already, name and bytes; it was counted once",
    )


def _no_rule(names: list[str]) -> Finding:
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return Finding(
        kind="no-usable-steps",
        severity=Severity.WARN,
        message=f"no rule for {shown}: expected curves with a finite value at a step that the golden and all repeats"
        " have, found none",
        numbers={"metrics": len(names)},
    )


def _nothing(series: list[Series]) -> Finding:
    from karat.runs.repeats import names_of  # noqa: PLC0415

    names = ", ".join(names_of(series)) or "none"
    return Finding(
        kind="nothing-compared",
        severity=Severity.FAIL,
        message=f"expected a metric that all repeats have at a shared step, found none; metrics: {names}",
    )
