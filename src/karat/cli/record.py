"""`karat record`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
    from karat.runs.record_report import Recorded
    from karat.runs.repeats import Combine, Repeat
    from karat.runs.samples import Samples

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
    "lost-steps", "new-nan", "nothing-compared", "ragged-row", "short-run", "structure-changed",
    "truncated", "type-changed", "unreadable",
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
@click.option(
    "--start", type=click.IntRange(-(2**63), 2**63 - 1), metavar="N", help="The first step to keep."
)
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
    if golden == "-":
        raise UsageError(
            "-o: expected the path of a golden, found -; a golden has a place and a past",
            next_command="karat record --help",
        )
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
    asked = {key: v for key, v in said.items() if v is not None}
    with _alone(Path(golden), dry_run=dry_run):
        job = _Job(Path(golden), config, asked, metrics, form)
        recorded, code = job.run(
            actual, combine, accept=accept_incomplete, dry_run=dry_run, replace=replace_samples
        )
    if manifest_file is not None and not dry_run:
        deliver(manifest_file, manifest(os.environ, identity))
    if json_file is not None:
        from karat.runs.record_report import document  # noqa: PLC0415

        deliver(json_file, document(recorded))
    if not quiet:
        _report(recorded, text="-" not in {json_file, manifest_file})
    return int(code)


@contextmanager
def _alone(golden: Path, *, dry_run: bool) -> Iterator[None]:
    """Keeps other karat processes from recording here: samples and lock are read, then written."""
    from karat.goldens.git import find_root  # noqa: PLC0415 - help must be quick
    from karat.refresh.writing import only_writer  # noqa: PLC0415

    folder = next(parent for parent in golden.resolve().parents if parent.is_dir())
    try:
        root = None if dry_run else find_root(folder)
    except CannotVerify:  # no git here
        root = None
    with only_writer(root) if root is not None else nullcontext():
        yield


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
        asked: dict[str, Any],
        metrics: tuple[str, ...],
        form: str | None,
    ) -> None:
        from karat.runs.placing import bytes_of  # noqa: PLC0415
        from karat.runs.settings import RecordSettings  # noqa: PLC0415

        self.path = golden
        self.config = config
        self.settings = settings = msgspec.structs.replace(config.record, **asked)
        # Of what is a golden already, only what the command line asks for is changed.
        self.of_golden = RecordSettings(**{"steps": settings.steps, **asked}) if asked else None
        self.metrics = metrics
        self.old_bytes = bytes_of(golden)
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
        replace: bool,
    ) -> tuple[Recorded, ExitCode]:
        """Read, judge, and write unless something objects."""
        from karat.runs.record_report import Recorded, metric_rows, run_row, told  # noqa: PLC0415
        from karat.runs.recording import (  # noqa: PLC0415
            accepted_incomplete,
            new_golden,
            said_by_runs,
        )
        from karat.runs.repeats import distinct  # noqa: PLC0415
        from karat.runs.samples import samples_path  # noqa: PLC0415

        repeats = [self._repeat(path) for path in distinct(actual)]
        old = self.old.golden if self.old else None
        findings = said_by_runs(repeats, old, self.settings, self.metrics)
        new = new_golden(repeats, combine, old, self.metrics, self.form)
        change = self._change(new, findings)
        found = [*findings, *(change.findings if change else ())]
        objections = [f for f in found if f.severity is Severity.FAIL and f.kind in _INCOMPLETE]
        # Nothing to take is no matter of being incomplete.
        unread = new is None or any(f.kind in UNVERIFIED | {"empty"} for f in findings)
        refused = unread or (bool(objections) and not accept)
        if objections and not refused:
            found.insert(0, accepted_incomplete(objections))
        samples = None if refused else self._samples(repeats, replace=replace)
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
            metrics=metric_rows(change.metrics if change else ()),
            findings=told(found, state),
            combine=combine if len(repeats) > 1 else None,
            accepted_incomplete=accepted,
            lock=locked,
            samples=str(samples_path(self.path)) if samples else None,
            samples_runs=len(samples.runs) if samples else 0,
            next=self._next(state, found, samples, unread=unread),
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
        settings = settings_like(old, self.settings)
        plain = read_run(path, settings, shape=shape, of_golden=self.of_golden)
        reading = self._in_its_terms(path, plain)
        try:
            sha256 = fingerprint(path) if reading.golden is not None else ""
        except OSError as error:
            raise CannotVerify(
                f"expected to read {path} again, but: {error.strerror}",
                next_command=f"ls -ld {shlex.quote(str(path))}",
            ) from error
        return Repeat(path=str(path), reading=reading, sha256=sha256)

    def _in_its_terms(self, path: Path, reading: Reading) -> Reading:
        """A table as its golden would write it, as `karat check` has compared the two."""
        from karat.check.tables import like_golden  # noqa: PLC0415
        from karat.compare.gate_judging import Judging  # noqa: PLC0415
        from karat.goldens.shapes import Table  # noqa: PLC0415
        from karat.runs.tables import completed  # noqa: PLC0415

        old = self.old.golden if self.old else None
        if not (isinstance(old, Table) and isinstance(reading.golden, Table) and path.is_file()):
            return reading
        if reading.golden.key == old.key and set(old.columns) <= set(reading.golden.columns):
            return reading
        judging = Judging(book=self.config.rule_book(), path=str(self.path))
        like = like_golden(path.read_bytes(), reading, old, judging, self.config.check.columns)
        if not isinstance(like.golden, Table):
            return reading
        rules = {name: judging.rule(name) for name in old.columns}
        tolerances = {name for name, rule in rules.items() if rule.tolerance}
        tolerances |= {rule.margin_column for rule in rules.values() if rule.margin_column}
        whole = completed(like.golden, old, tolerances)
        return msgspec.structs.replace(like, golden=whole)

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
        from karat.runs.lock_line import lock_line, origin_of  # noqa: PLC0415
        from karat.runs.placing import Placement  # noqa: PLC0415
        from karat.runs.recording import matching  # noqa: PLC0415

        data = self._bytes(golden)
        if dry_run:
            return ("unchanged" if data == self.old_bytes else "would-write"), False
        return Placement(
            golden=self.path,
            data=data,
            old=self.old_bytes,
            samples=samples,
            # Read before anything is written: a lock with conflict markers stops all of it.
            line=lock_line(self.path, self.config.paths, self.config.exclude),
            origin=origin_of(os.environ, accepted=accepted, date=_today()),
            metrics=matching(golden, self.metrics),
        ).write()

    def _bytes(self, golden: Golden) -> bytes:
        from karat.goldens import formats  # noqa: PLC0415

        like = self.old_bytes if self.old and self.old.format == self.form else None
        return formats.write(golden, like=like, format=self.form)

    def _next(
        self, state: str, findings: list[Finding], samples: Samples | None, *, unread: bool
    ) -> str | None:
        from karat.runs.tables import renaming  # noqa: PLC0415

        name = shlex.quote(str(self.path))
        words = sys.argv[1:]
        if state == "refused":
            told = next((f.next for f in findings if f.severity is Severity.FAIL and f.next), None)
            if told or unread:
                return told or "karat record --help  # nothing could be taken: run the test again"
            forced = shlex.join(["karat", *words[:1], "--accept-incomplete", *words[1:]])
            return (
                renaming(findings, self.form)
                or f"{forced}  # if it is meant; else run the test again"
            )
        if state == "would-write":
            return shlex.join(["karat", *(w for w in words if w != "--dry-run")])
        if samples is not None and len(samples.runs) > 1:
            return f"karat tolerance --golden {name}"
        return f"git add {name}" if state == "written" else None


def _today() -> str:
    from datetime import UTC, datetime  # noqa: PLC0415

    return datetime.now(UTC).date().isoformat()
