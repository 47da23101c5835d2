"""Record: runs are read, judged against the golden that is there, and written unless something objects.

Samples are written first, the golden then, the lock last, each file whole or not at all. Whoever is killed
in between finds on the next try what is there already, and does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

import msgspec
from msgspec.structs import replace

from karat.compare.gate.result import Judging
from karat.compare.gate.table import like_golden
from karat.compare.pairs import GoldenPair, compare
from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.findings import UNVERIFIED, ExitCode, Finding, Severity, UsageError, warn
from karat.goldens import formats
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter
from karat.goldens.provenance import LockEntry, Provenance, place_of, read_lock, write_lock
from karat.goldens.saves import is_committed, keep_edits, save
from karat.goldens.shapes import Golden, Reading, Series, Table
from karat.report.words import count
from karat.runs import curves
from karat.runs.read import read_run
from karat.runs.repeats import (
    Repeat,
    Samples,
    distinct,
    fingerprint,
    read_samples,
    render_samples,
    samples_of,
    samples_path,
)
from karat.settings import RecordSettings
from karat.system.ci import facts
from karat.system.command import Command
from karat.system.files import bytes_of, expecting
from karat.system.foreign.limits import GOLDEN, read_plain
from karat.system.git import only_writer, work_tree_around
from karat.system.hashes import sha256_hex


class RecordOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to record, and how."""

    settings: RecordSettings = RecordSettings()  # The table [record] of karat.toml.
    metrics: tuple[str, ...] = ()
    format: str | None = None
    accept_incomplete: bool = False
    replace_samples: bool = False
    dry_run: bool = False
    globs: Sequence[str] = DEFAULT_GLOBS
    exclude: Sequence[str] = ()
    rules: RuleBook = msgspec.field(default_factory=RuleBook)
    status: Sequence[str] = STATUS_ORDER
    columns: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Names of a result's columns → the golden's: the table [check] columns."""
    command: Command = Command("karat", "record")  # As typed, for what to run next.


class MetricRow(msgspec.Struct, frozen=True, kw_only=True):
    """One metric, old golden against new."""

    metric: str
    verdict: str
    because: str
    n_steps: int = 0
    avg_rel_diff: float | None = None
    max_abs_rel_diff: float | None = None
    first_diff_step: int | str | None = None


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ACTUAL as it was read."""

    path: str
    format: str | None = None
    shape: str | None = None
    metrics: int = 0  # Curves of a series, rows of a table.
    first_step: int | None = None
    last_step: int | None = None

    @classmethod
    def of(cls, repeat: Repeat) -> RunRow:
        golden = repeat.reading.golden
        size, steps = int(golden is not None), []
        if isinstance(golden, Series):
            size = len(golden.metrics) + len(golden.scalars)
            steps = [m.steps for m in golden.metrics.values() if len(m.steps)]
        elif isinstance(golden, Table):
            size = len(golden.rows)
        return cls(
            path=repeat.path,
            format=repeat.reading.format,
            shape=golden.shape if golden is not None else None,
            metrics=size,
            first_step=min((int(one[0]) for one in steps), default=None),
            last_step=max((int(one[-1]) for one in steps), default=None),
        )


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that recording one golden came to."""

    golden: str
    state: str  # `written`, `unchanged`, `would-write` (--dry-run) or `refused`.
    verdict: str | None  # None where nothing could be compared, because nothing could be read.
    runs: tuple[RunRow, ...]
    metrics: tuple[MetricRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    accepted_incomplete: bool = False
    lock: bool = False  # Whether goldens.lock.json has a new line for it.
    samples: str | None = None
    samples_runs: int = 0
    next: str | None = None
    take: str | None = None  # What records it all the same, or for good; nobody has to.

    def lines(self) -> Iterator[str]:
        for run in self.runs:
            noun = {"series": "metric", "table": "row"}.get(run.shape or "", "document")
            steps = f", steps {run.first_step}–{run.last_step}" if run.first_step is not None else ""
            described = f"{count(run.metrics, noun)}{steps} ({run.format})"
            yield f"read {run.path}: {described if run.shape else 'nothing that could be taken'}"
        if self.verdict is not None:
            yield f"{self.golden}: {self.verdict}"
        width = max((len(row.metric) for row in self.metrics), default=0)
        for row in self.metrics:
            moved, largest = row.because, row.max_abs_rel_diff
            if row.avg_rel_diff is not None and isfinite(row.avg_rel_diff):
                moved = f"avg {row.avg_rel_diff:+.2e}"
                moved += "" if largest is None else f", max |·| {largest:.2e}"
                moved += f" over {count(row.n_steps, 'step')}"
            yield f"  {row.metric:{width}}  {row.verdict:10}  {moved}".rstrip()
        for finding in sorted(self.findings, key=lambda f: f.severity.rank):
            yield f"{finding.severity.value:4}  {finding.kind}: {finding.message}"
            if finding.kind == "kept-edits":
                yield f"      have it back: {finding.next}"
        how = f", the first of {len(self.runs)} runs" if len(self.runs) > 1 else ""
        yield {
            "written": f"wrote {self.golden}{how}",
            "unchanged": f"{self.golden} already holds exactly this; not touched",
            "would-write": f"would write {self.golden}{how} (--dry-run)",
            "refused": f"refused: {self.golden} was left as it is",
        }[self.state]
        if self.lock:
            yield "noted where it came from in goldens.lock.json"
        if self.samples is not None:
            verb = "would keep" if self.state == "would-write" else "kept"
            yield f"{verb} the samples of {count(self.samples_runs, 'run')} in {self.samples}"


def record(golden: Path, actual: Sequence[str], options: RecordOptions) -> tuple[Recorded, ExitCode]:
    """Make or update a golden from what runs left."""
    root = None if options.dry_run else work_tree_around(golden)
    # Samples and lock are read, then written: no other karat process may record here meanwhile.
    with only_writer(root) if root is not None else nullcontext() as temporary:
        return _Recording(golden, options, root, temporary).run(actual)


class _Judgement:
    """What the findings come to: taken, taken all the same, or refused."""

    def __init__(self, of_runs: Sequence[Finding], compared: Sequence[Finding], *, empty: bool, accept: bool) -> None:
        found = [*of_runs, *compared]
        objections = [f for f in found if f.condemns]
        # Nothing to take is no matter of being incomplete.
        hopeless = UNVERIFIED | {"empty"}
        self.empty = empty or any(f.severity is Severity.FAIL and f.kind in hopeless for f in of_runs)
        self.refused = self.empty or (bool(objections) and not accept)
        self.accepted = bool(objections) and not self.refused
        self.findings = found
        if self.accepted:
            kinds = ", ".join(sorted({f.kind for f in objections}))
            number = count(len(objections), "finding")
            said = f"taken although {number} object ({kinds}), because of --accept-incomplete"
            accepted = warn("accepted-incomplete", said, numbers={"objections": len(objections)})
            self.findings = [accepted, *found]


class _Recording:
    """One golden and what is to become of it."""

    def __init__(self, golden: Path, options: RecordOptions, root: Path | None, temporary: Path | None) -> None:
        self.path = golden
        self.root, self.temporary = root, temporary
        self.kept: list[Finding] = []
        self.old_samples: bytes | None = None
        self.line: LockLine | None = None  # As it was before anything was written.
        self.options = options
        self.settings = options.settings
        if golden.is_symlink():  # asked before anything is written, the samples too
            said = f"expected a plain file at {golden}, found a symbolic link; record what it points at"
            raise UsageError(said, next_command=Command("readlink", "-f", str(golden)))
        self.old_bytes: bytes | None = None
        with expecting(f"read the golden {golden}", golden), suppress(FileNotFoundError):
            self.old_bytes = read_plain(golden, GOLDEN)
        self.old = None if self.old_bytes is None else formats.read(self.old_bytes, str(self.path))
        self.old_golden = self.old.golden if self.old else None
        # What is there keeps its format unless the command line says otherwise.
        known = self.old.format if self.old and self.old_golden is not None else None
        self.format = options.format or known or self.settings.format

    def run(self, actual: Sequence[str]) -> tuple[Recorded, ExitCode]:
        """Read, judge, and write unless something objects."""
        options = self.options
        repeats = [self._repeat(path) for path in distinct(actual)]
        of_runs = curves.findings_of_runs(repeats, self.old_golden, self.settings, options.metrics)
        new = curves.new_golden(repeats, self.old_golden, options.metrics, self.format)
        pair = GoldenPair(path=str(self.path), old=self.old, new=Reading(new))
        change = None if new is None else compare(pair, options.rules, status=tuple(options.status))
        # That nothing could be compared is an objection to writing.
        exists = bool(self.old_bytes and self.old_bytes.strip())
        taken = "; the new one is taken without a comparison"
        compared = [
            replace(f, severity=Severity.FAIL, message=f.message.removesuffix(taken))
            if f.kind == "no-baseline" and exists
            else f
            for f in (change.findings if change else ())
        ]
        judged = _Judgement(of_runs, compared, empty=new is None, accept=options.accept_incomplete)
        samples = None
        # One run alone says nothing of noise.
        if not judged.refused and (len(repeats) > 1 or samples_path(self.path).exists()):
            with suppress(OSError):  # the reader below says what is wrong
                self.old_samples = bytes_of(samples_path(self.path))
            before = Samples() if options.replace_samples else read_samples(samples_path(self.path))
            samples = before.plus(samples_of(repeats))
        earlier = len(samples.runs) - len(repeats) if samples is not None else 0
        if change is not None and earlier > 0 and change.verdict.value in {"drift", "break"}:
            are = "1 earlier sample is" if earlier == 1 else f"{earlier} earlier samples are"
            message = (
                f"the values moved, and {are} of the curve before: a tolerance made of both"
                " would be as wide as the change; --replace-samples forgets them"
            )
            judged.findings.append(warn("superseded", message, numbers={"samples": earlier}))
        state, locked = "refused", False
        if new is not None and not judged.refused:
            state, locked = self._write(new, samples, accepted=judged.accepted)
        # Each finding once; of a golden that was taken none objects any more, and none is about its style.
        reported = {(f.kind, f.message, f.path): f for f in judged.findings}
        if state != "refused":
            reported = {
                key: replace(f, severity=Severity.WARN) if f.severity is Severity.FAIL else f
                for key, f in reported.items()
                if state != "unchanged" or f.kind != "format-only"
            }
        recorded = Recorded(
            golden=str(self.path),
            state=state,
            verdict=change.verdict.value if change else None,
            runs=tuple(RunRow.of(repeat) for repeat in repeats),
            metrics=tuple(
                MetricRow(**{name: getattr(one, name) for name in MetricRow.__struct_fields__})
                for one in (change.metrics if change else ())
            ),
            findings=(*reported.values(), *self.kept),
            accepted_incomplete=judged.accepted,
            lock=locked,
            samples=str(samples_path(self.path)) if samples else None,
            samples_runs=len(samples.runs) if samples else 0,
            next=self._next(state, judged, samples),
            take=self._take(state, judged, locked=locked),
        )
        failed = [f for f in judged.findings if f.severity is Severity.FAIL]
        # All that objects may be that nothing could be had.
        bare = ExitCode.CANNOT_VERIFY if all(f.kind in UNVERIFIED for f in failed) else ExitCode.FAIL
        return recorded, bare if judged.refused else ExitCode.OK

    def _repeat(self, path: Path) -> Repeat:
        shape = self.old_golden.shape if self.old_golden else None
        if self.format == "table-csv":
            shape = "table"
        settings = curves.settings_like(self.old_golden, self.settings)
        plain = read_run(path, settings, shape=shape)
        reading = self._like_golden(path, plain)
        with expecting(f"read {path} again", path):
            sha256 = fingerprint(path) if reading.golden is not None else ""
        return Repeat(path=str(path), reading=reading, sha256=sha256)

    def _like_golden(self, path: Path, reading: Reading) -> Reading:
        """A table as its golden would write it, as `karat check` compares the two."""
        old, new = self.old_golden, reading.golden
        if not (isinstance(old, Table) and isinstance(new, Table) and path.is_file()):
            return reading
        if new.key == old.key and set(old.columns) <= set(new.columns):
            return reading
        judging = Judging(book=self.options.rules, path=str(self.path))
        like = like_golden(read_plain(path), reading, old, judging, self.options.columns)
        made = like.golden
        if not isinstance(made, Table):
            return reading
        rules = {name: judging.rule(name) for name in old.columns}
        tolerances = {name for name, rule in rules.items() if rule.tolerance}
        tolerances |= {rule.margin_column for rule in rules.values() if rule.margin_column}
        # How far a number may move stands in columns of the golden that no benchmark knows; taking a result must not lose
        # them, where these are all that it lacks.
        lost = {name for name in old.columns if name not in made.columns}
        if not lost or made.key != old.key or not lost <= tolerances:
            return like
        columns = (*old.columns, *(name for name in made.columns if name not in old.columns))
        rows = {}
        for key, row in made.rows.items():
            held = dict(zip(old.columns, old.rows[key], strict=True)) if key in old.rows else {}
            held |= dict(zip(made.columns, row, strict=True))
            rows[key] = tuple(held.get(name, "") for name in columns)
        return replace(like, golden=replace(made, columns=columns, rows=rows, header=old.header))

    def _write(self, golden: Golden, samples: Samples | None, *, accepted: bool) -> tuple[str, bool]:
        """What became of the golden's file, and whether the lock has a new line."""
        like = self.old_bytes if self.old and self.old.format == self.format else None
        data = formats.write(golden, like=like, format=self.format)
        same = data == self.old_bytes
        if self.options.dry_run:
            return ("unchanged" if same else "would-write"), False
        # Read before anything is written: a lock with conflict markers stops all of it.
        line = self.line = lock_line(self.path, self.options.globs, self.options.exclude)
        origin = origin_of(os.environ, accepted=accepted)
        if samples is not None:
            file = samples_path(self.path)
            self.kept += save(file, render_samples(samples), self.old_samples, root=self.root, temporary=self.temporary)
        if not same:
            root, seen = self.root, self.old_bytes
            if root is not None and seen is not None:
                path = self.path.resolve().relative_to(root.resolve()).as_posix()
                entry = line.entries.get(line.path) if line else None
                if not (entry and entry.sha256 == sha256_hex(seen)) and not is_committed(root, path, seen):
                    self.kept.append(keep_edits(root, path, seen))
            self.kept += save(self.path, data, seen, root=root, temporary=self.temporary)
        elif line is None or line.knows(data, origin):
            return "unchanged", False
        metrics = curves.matching(golden, self.options.metrics)
        locked = line is not None and line.note(data, origin, metrics)
        return ("unchanged" if same else "written"), locked

    def _next(self, state: str, judged: _Judgement, samples: Samples | None) -> str | None:
        if state == "refused":
            failed = [f for f in judged.findings if f.severity is Severity.FAIL]
            advice = next((f.next for f in failed if f.next), None)
            if advice or judged.empty:
                return advice or "karat record --help  # nothing could be taken: run the test again"
            return f"{Command('karat', 'help', failed[0].kind)}  # and run the test again, unless it is meant"
        if samples is not None and len(samples.runs) > 1:
            return str(Command("karat", "tolerance", "--golden", str(self.path)))
        if state != "written":
            return None
        words = ("karat", "diff", "--only", self.line.path) if self.line else ("git", "diff", "--", str(self.path))
        return str(Command(*words))

    def _take(self, state: str, judged: _Judgement, *, locked: bool) -> str | None:
        """What takes the run in spite of what is said of it, or for good."""
        words = self.options.command.words
        if state == "refused" and not judged.empty and not any(f.next for f in judged.findings):
            return str(Command(*words[:2], "--accept-incomplete", *words[2:]))
        if state == "would-write":
            return str(Command(*(word for word in words if word != "--dry-run")))
        if state != "written":
            return None
        # Neither without the other.
        lock = [os.path.relpath(self.line.file)] if self.line and locked else []
        return str(Command("git", "add", str(self.path), *lock))


class LockLine(msgspec.Struct, frozen=True, kw_only=True):
    """One golden's place in the lock of its group."""

    file: Path
    path: str  # The golden, relative to the lock's folder.
    entries: Mapping[str, LockEntry]

    def knows(self, data: bytes, origin: Provenance) -> bool:
        """Whether the lock says all there is to say about these bytes."""
        entry = self.entries.get(self.path)
        if entry is None:
            return not self.entries and origin.accepted is None
        accepted = entry.accepted or any(one.accepted for one in entry.metrics.values())
        return bool(origin.accepted is None or accepted) and entry.sha256 == sha256_hex(data)

    def note(self, data: bytes, origin: Provenance, metrics: Sequence[str]) -> bool:
        """Write the line for a golden with these bytes; with metrics, only theirs is new."""
        if not self.entries and origin.accepted is None:
            return False  # no refresh has begun a lock here, and there is nothing to own up to
        old = self.entries.get(self.path)
        entry = LockEntry.of(origin, sha256_hex(data), old, metrics)
        return write_lock(self.file, {self.path: entry})


def lock_line(golden: Path, globs: Sequence[str], exclude: Sequence[str]) -> LockLine | None:
    """Where the lock would speak of this golden; None outside a repository or the golden paths."""
    root = work_tree_around(golden)
    if root is None:
        return None
    path = golden.resolve().relative_to(root.resolve()).as_posix()
    if not PathFilter(globs, exclude).covers(path):
        return None
    lock, name = place_of(path, globs)
    return LockLine(file=root / lock, path=name, entries=read_lock(root / lock))


def origin_of(environment: Mapping[str, str], *, accepted: bool) -> Provenance:
    """Where a golden that is recorded now comes from: what CI's variables say of this job."""
    known = facts(environment)
    # Buildkite counts from 0.
    attempt = int(known["attempt"]) if known.get("attempt", "").isdecimal() else 0
    return Provenance(
        source="record",
        run=known.get("run"),
        attempt=attempt or None,
        **{name: known.get(name) for name in ("commit", "job", "image")},
        date=datetime.now(UTC).date().isoformat(),
        accepted="--accept-incomplete" if accepted else None,
    )
