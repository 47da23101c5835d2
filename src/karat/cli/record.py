"""`karat record`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from karat.cli.output import deliver, one_report_each
from karat.findings import UNVERIFIED, CannotVerify, ExitCode, Finding, Severity, UsageError

if TYPE_CHECKING:
    from karat.compare.change import Change
    from karat.config import Config
    from karat.goldens.shapes import Golden, Reading
    from karat.runs.lock_line import LockLine
    from karat.runs.record_report import Recorded
    from karat.runs.repeats import Combine, Repeat
    from karat.runs.samples import Samples
    from karat.runs.settings import RecordSettings

_EXAMPLES = """
\b
Examples:
  karat record logs/tensorboard -o golden_values.json --steps 50
  karat record run1 run2 run3 -o golden_values.json       repeats: their samples are kept
  karat record train.jsonl -o golden_values.json --metric 'mem-*'
  karat record out.csv -o golden.json --manifest karat-manifest.json --identity case=bert_tp2
"""

# Findings that say that the run is not all there, or that what it left cannot be trusted.
_INCOMPLETE = frozenset({
    "conflict-markers", "duplicate-key", "duplicate-row", "empty", "lost-metric", "lost-rows",
    "lost-steps", "new-nan", "nothing-compared", "ragged-row", "short-run", "truncated",
    "type-changed", "unreadable",
})  # fmt: skip


@click.command(epilog=_EXAMPLES)
@click.argument("actual", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    "golden",
    required=True,
    metavar="GOLDEN",
    help="The golden to make or update.",
)
@click.option(
    "--metric", "metrics", multiple=True, metavar="GLOB",
    help="Take only these metrics; the rest of the golden stays as it was. Repeatable.",
)  # fmt: skip
@click.option(
    "--tag", "tags", multiple=True, metavar="GLOB",
    help="Take only these names of the run, before any renaming. Repeatable.",
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(min=0), metavar="N", help="The last step of a whole run."
)
@click.option("--precision", type=click.IntRange(0, 17), metavar="N", help="Decimals to round to.")
@click.option("--start", type=int, metavar="N", help="The first step to keep.")
@click.option(
    "--interval", type=click.IntRange(min=1), metavar="N",
    help="Keep the first step and the multiples of N; a step without a sample becomes NaN.",
)  # fmt: skip
@click.option(
    "--format", "form", metavar="NAME",
    help="The golden's format; by default the one it has, or series-json.",
)  # fmt: skip
@click.option(
    "--combine", type=click.Choice(["first", "median", "mean"]), default="first", show_default=True,
    help="What the golden of several runs is.",
)  # fmt: skip
@click.option("--replace-samples", is_flag=True, help="Forget the samples of earlier runs.")
@click.option(
    "--accept-incomplete", is_flag=True, help="Take a run although it is short, or lacks something."
)
@click.option("--dry-run", is_flag=True, help="Judge and report, write nothing.")
@click.option(
    "--json", "json_file", metavar="F", help="Write the report, schema karat.record/1; - is stdout."
)
@click.option(
    "--manifest", "manifest_file", metavar="F",
    help="Write what CI says of this job, for `karat refresh` to find.",
)  # fmt: skip
@click.option(
    "--identity", "identities", multiple=True, metavar="KEY=VALUE",
    help="What the manifest says of the case: case, platform, … Repeatable.",
)  # fmt: skip
@click.option(
    "--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrules karat.toml."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but what was asked for by option.")
def command(  # noqa: PLR0913 - one parameter per option
    *, actual: tuple[str, ...], golden: str, metrics: tuple[str, ...], tags: tuple[str, ...],
    steps: int | None, precision: int | None, start: int | None, interval: int | None,
    form: str | None, combine: Combine, replace_samples: bool, accept_incomplete: bool,
    dry_run: bool, json_file: str | None, manifest_file: str | None, identities: tuple[str, ...],
    preset: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Make or update a golden from what a run left.

    ACTUAL is a TensorBoard event file or a folder of them, JSON Lines, CSV with a step column, a log
    (with patterns in karat.toml), or any golden format. Several are repeats of one test. A run that
    is short, or lacks what the golden has, is refused: the golden stays as it was.
    """
    from karat.config import load  # noqa: PLC0415 - help must be quick
    from karat.runs.artifact import manifest, parse_identity  # noqa: PLC0415

    one_report_each({"--json": json_file, "--manifest": manifest_file, "-o": golden})
    identity = parse_identity(identities)
    if identity and manifest_file is None:
        raise UsageError(
            "--identity: expected --manifest F beside it, found none",
            next_command="karat record --help",
        )
    config = load(Path.cwd(), preset=preset)
    said = {
        "tags": tags or None, "steps": steps, "precision": precision, "start": start,
        "interval": interval,
    }  # fmt: skip
    settings = _overlaid(config.record, {key: v for key, v in said.items() if v is not None})
    job = _Job(Path(golden), config, settings, metrics, form)
    recorded, code = job.run(
        actual, combine, accept=accept_incomplete, dry_run=dry_run, replace_samples=replace_samples
    )
    if manifest_file is not None and not dry_run:
        deliver(manifest_file, manifest(os.environ, identity))
    if json_file is not None:
        from karat.runs.record_report import document  # noqa: PLC0415

        deliver(json_file, document(recorded))
    if not quiet:
        _report(recorded, text="-" not in {json_file, manifest_file})
    return int(code)


def _overlaid(settings: RecordSettings, said: dict[str, Any]) -> RecordSettings:
    """The settings with what the command line says over them; checked again as a whole."""
    from karat.runs.settings import RecordSettings  # noqa: PLC0415

    whole = {**msgspec.structs.asdict(settings), **said}
    return RecordSettings(**whole)


def _report(recorded: Recorded, *, text: bool) -> None:
    from karat.report.words import printable  # noqa: PLC0415
    from karat.runs.record_report import lines  # noqa: PLC0415

    for line in lines(recorded) if text else ():
        print(printable(line))
    if recorded.next:
        print(f"next: {printable(recorded.next)}", file=sys.stderr)


class _Job:
    """One golden and what is to become of it."""

    def __init__(
        self,
        golden: Path,
        config: Config,
        settings: RecordSettings,
        metrics: tuple[str, ...],
        form: str | None,
    ) -> None:
        self.path = golden
        self.config = config
        self.settings = settings
        self.metrics = metrics
        self.old_bytes = _bytes_of(golden)
        self.old = self._read_old()
        # What stands keeps its format unless the command line says otherwise.
        known = self.old.format if self.old and self.old.golden is not None else None
        self.form = form or known or settings.format

    def _read_old(self) -> Reading | None:
        from karat.goldens import formats  # noqa: PLC0415 - brings numpy

        return None if self.old_bytes is None else formats.read(self.old_bytes, str(self.path))

    def run(
        self,
        actual: tuple[str, ...],
        combine: Combine,
        *,
        accept: bool,
        dry_run: bool,
        replace_samples: bool,
    ) -> tuple[Recorded, ExitCode]:
        """Read, judge, and write unless something objects."""
        from karat.runs.record_report import Recorded, run_row  # noqa: PLC0415
        from karat.runs.recording import (  # noqa: PLC0415
            accepted_incomplete,
            new_golden,
            said_by_runs,
        )
        from karat.runs.samples import samples_path  # noqa: PLC0415

        repeats = [self._repeat(Path(name)) for name in actual]
        old = self.old.golden if self.old else None
        findings = said_by_runs(repeats, old, self.settings, self.metrics)
        new = new_golden(repeats, combine, old, self.metrics, self.form)
        change = self._change(new, findings)
        found = [*findings, *(change.findings if change else ())]
        objections = [f for f in found if f.severity is Severity.FAIL and f.kind in _INCOMPLETE]
        unread = any(f.kind in UNVERIFIED for f in findings) or new is None
        refused = unread or (bool(objections) and not accept)
        if objections and not refused:
            found.insert(0, accepted_incomplete(objections))
        samples = None if refused else self._samples(repeats, replace=replace_samples)
        accepted = bool(objections) and not refused
        state, locked = "refused", False
        if new is not None and not refused:
            state, locked = self._write(new, samples, accepted=accepted, dry_run=dry_run)
        code = ExitCode.OK
        if refused:
            bare = all(f.kind in UNVERIFIED for f in found if f.severity is Severity.FAIL)
            code = ExitCode.CANNOT_VERIFY if bare else ExitCode.FAIL
        recorded = Recorded(
            golden=str(self.path),
            state=state,
            verdict=change.verdict.value if change else None,
            runs=tuple(map(run_row, repeats)),
            metrics=_rows(change),
            findings=_told(found, refused=refused),
            combine=combine if len(repeats) > 1 else None,
            accepted_incomplete=accepted,
            lock=locked,
            samples=str(samples_path(self.path)) if samples else None,
            samples_runs=len(samples.runs) if samples else 0,
            next=self._next(state, found, samples),
        )
        return recorded, code

    def _repeat(self, path: Path) -> Repeat:
        from karat.runs.reading import read_run  # noqa: PLC0415 - brings numpy
        from karat.runs.recording import settings_like  # noqa: PLC0415
        from karat.runs.repeats import Repeat, fingerprint  # noqa: PLC0415

        old = self.old.golden if self.old else None
        shape = old.shape if old else None
        if self.form == "table-csv":
            shape = "table"
        reading = read_run(path, settings_like(old, self.settings), shape=shape)
        try:
            sha256 = fingerprint(path) if reading.golden is not None else ""
        except OSError as error:
            raise CannotVerify(
                f"expected to read {path} again, but: {error.strerror}",
                next_command=f"ls -ld {path}",
            ) from error
        return Repeat(path=str(path), reading=reading, sha256=sha256)

    def _change(self, new: Golden | None, findings: list[Finding]) -> Change | None:
        """The new golden against the old one."""
        from msgspec import structs  # noqa: PLC0415

        from karat.compare.pairs import Pair, compare  # noqa: PLC0415
        from karat.goldens.shapes import Reading, Series  # noqa: PLC0415
        from karat.runs.recording import shortened, up_to  # noqa: PLC0415
        from karat.runs.shaping import last_step  # noqa: PLC0415

        if new is None:
            return None
        old, steps = self.old, self.settings.steps
        if old is not None and isinstance(old.golden, Series) and steps is not None:
            last = last_step(old.golden)
            if last is not None and last > steps:
                findings.append(shortened(steps, last))
                old = structs.replace(old, golden=up_to(old.golden, steps))
        pair = Pair(path=str(self.path), old=old, new=Reading(new))
        return compare(pair, self.config.rule_book(), status=self.config.status)

    def _samples(self, repeats: list[Repeat], *, replace: bool) -> Samples | None:
        """All samples that are known now; None where one run alone says nothing of noise."""
        from karat.runs.samples import (  # noqa: PLC0415
            Samples,
            read_samples,
            samples_of,
            samples_path,
        )

        path = samples_path(self.path)
        if len(repeats) < 2 and not path.exists():
            return None
        return (Samples() if replace else read_samples(path)).plus(samples_of(repeats))

    def _write(
        self, golden: Golden, samples: Samples | None, *, accepted: bool, dry_run: bool
    ) -> tuple[str, bool]:
        """What became of the golden's file, and whether the lock has a new line."""
        from karat.runs.lock_line import lock_line  # noqa: PLC0415
        from karat.runs.recording import matching  # noqa: PLC0415
        from karat.runs.samples import render_samples, samples_path  # noqa: PLC0415

        data = self._bytes(golden)
        same = data == self.old_bytes
        if dry_run:
            return ("unchanged" if same else "would-write"), False
        # Read before anything is written: a lock with conflict markers stops all of it.
        line = lock_line(self.path, self.config.paths, self.config.exclude)
        if samples is not None:
            _put(samples_path(self.path), render_samples(samples))
        if same:
            return "unchanged", False
        _put(self.path, data)
        names = matching(golden, self.metrics)
        noted = line is not None and self._lock(line, data, names, accepted=accepted)
        return "written", noted

    def _bytes(self, golden: Golden) -> bytes:
        from karat.goldens import formats  # noqa: PLC0415

        like = self.old_bytes if self.old and self.old.format == self.form else None
        return formats.write(golden, like=like, format=self.form)

    def _lock(self, line: LockLine, data: bytes, names: list[str], *, accepted: bool) -> bool:
        from datetime import UTC, datetime  # noqa: PLC0415

        from karat.runs.lock_line import origin_of  # noqa: PLC0415

        today = datetime.now(UTC).date().isoformat()
        origin = origin_of(os.environ, accepted=accepted, date=today)
        return line.note(data, origin, names)

    def _next(self, state: str, findings: list[Finding], samples: Samples | None) -> str | None:
        name = shlex.quote(str(self.path))
        if state == "refused":
            told = next((f.next for f in findings if f.severity is Severity.FAIL and f.next), None)
            return told or "run the test again; --accept-incomplete takes it as it is"
        if state == "would-write":
            return shlex.join(["karat", *(w for w in sys.argv[1:] if w != "--dry-run")])
        if samples is not None and len(samples.runs) > 1:
            return f"karat tolerance --golden {name}"
        return f"git add {name}" if state == "written" else None


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotVerify(
            f"expected to read the golden {path}, but: {error.strerror}",
            next_command=f"ls -ld {path}",
        ) from error


def _put(path: Path, data: bytes) -> None:
    from karat.goldens.atomic import write_bytes  # noqa: PLC0415

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {path}, but: {error.strerror or error}",
            next_command=f"ls -ld {path.parent}",
        ) from error


def _rows(change: Change | None) -> tuple[Any, ...]:
    from karat.runs.record_report import MetricRow  # noqa: PLC0415

    names = MetricRow.__struct_fields__
    rows = change.metrics if change else ()
    return tuple(MetricRow(**{name: getattr(row, name) for name in names}) for row in rows)


def _told(findings: list[Finding], *, refused: bool) -> tuple[Finding, ...]:
    """Each finding once; of a golden that was taken, none objects any more."""
    from dataclasses import replace  # noqa: PLC0415

    once = {(f.kind, f.message, f.path): f for f in findings}.values()
    if refused:
        return tuple(once)
    return tuple(
        replace(f, severity=Severity.WARN) if f.severity is Severity.FAIL else f for f in once
    )
