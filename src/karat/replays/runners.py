"""Stations: where cases are replayed, several at once; each station does one case after the other."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec

from karat.bundles import manifest as manifests
from karat.bundles.cases import Case, Spool
from karat.bundles.extents import FileExtent
from karat.bundles.manifest import Manifest, TensorRecord
from karat.bundles.tensor_files import TABLE, RawRow, encode_rows, file_names, read_raw
from karat.findings import Finding, KaratError, Severity
from karat.replays.judge import (
    damaged,
    failed,
    measure_of,
    nothing_compared,
    out_of_reach,
    placed,
    verify_expected,
    with_origin,
)
from karat.replays.options import Command, Judging, Progress, filled, uses
from karat.replays.outcome import Replayed, outcome_of
from karat.replays.processes import (
    Hello,
    Job,
    Lost,
    Worker,
    Workplaces,
    end_of,
    ending,
    kill_group,
    tail,
)
from karat.replays.worker import LOG as LOG_FUNCTIONS
from karat.tensors import blocks
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Comparison
from karat.tensors.report import shape_text
from karat.tensors.tensor import Damaged, TensorExtent

_PATIENCE = 30.0


class Station(Protocol):
    """Replays cases, one at a time; whatever a program does, the station answers."""

    def replay(self, case: Case) -> Replayed:
        """What became of the case."""

    def stop(self) -> None:
        """Ends whatever runs, from any thread; whoever waits for it is told that it failed."""

    def close(self) -> None:
        """Lets go of everything, once nobody replays here any more."""


def replay_all(
    cases: Sequence[Case], stations: Sequence[Station], progress: Progress | None = None
) -> list[Replayed]:
    """What became of each case, in order. Nothing runs any more afterwards, also after Ctrl-C."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(cases)):
        todo.put(number)
    done: queue.SimpleQueue[tuple[int, Replayed] | BaseException] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=_work, args=(station, cases, todo, done.put), daemon=True)
        for station in stations
    ]
    results: dict[int, Replayed] = {}
    try:
        for thread in threads:
            thread.start()
        while len(results) < len(cases):
            answer = done.get()
            if isinstance(answer, BaseException):
                raise answer
            results[answer[0]] = answer[1]
            if progress is not None:
                progress(len(results), len(cases))
    finally:
        with contextlib.suppress(queue.Empty):
            while True:
                todo.get_nowait()
        for station in stations:
            station.stop()
        for thread in threads:
            thread.join(_PATIENCE)
    return [results[number] for number in range(len(cases))]


def _work(
    station: Station,
    cases: Sequence[Case],
    todo: queue.SimpleQueue[int],
    tell: Callable[[tuple[int, Replayed] | BaseException], None],
) -> None:
    while True:
        try:
            number = todo.get_nowait()
        except queue.Empty:
            return
        try:
            tell((number, station.replay(cases[number])))
        except BaseException as error:  # noqa: BLE001 - the main thread is the one to raise it
            tell(error)
            return


# DOC-HERE structures: What of a recorded structure is no tensor, and therefore out of a command's reach.


def plain_values(structure: Any) -> Iterator[Any]:
    """Numbers, text and the like in a recorded structure; None says nothing, and is left out."""
    if not isinstance(structure, dict):
        if structure is not None:
            yield structure
        return
    kind = next(iter(structure), "")
    inner = structure[kind] if kind else ()
    if kind in {"tensor", "scalar"}:
        return
    if "fields" in structure:
        for _, value in structure["fields"]:
            yield from plain_values(value)
    elif kind.endswith("dict"):
        for _, value in inner:
            yield from plain_values(value)
    elif kind in {"tuple", "list", "set", "frozenset"}:
        for value in inner:
            yield from plain_values(value)
    else:
        yield structure


def values_outside_tensors(manifest: Manifest) -> Iterator[Finding]:
    """What a command was not given as a file, or could not give back as one."""
    inputs = sum(1 for _ in plain_values(manifest.inputs))
    expected = sum(1 for _ in plain_values(manifest.expected))
    if inputs:
        yield Finding(
            kind="plain-values",
            severity=Severity.INFO,
            message=f"{inputs} of the inputs are no tensors; the command finds them in {{manifest}}, under inputs",
        )
    if expected:
        yield Finding(
            kind="plain-values",
            severity=Severity.INFO,
            message=f"{expected} of the expected values are no tensors, which a command cannot give back; they were not compared",
        )


# DOC-HERE raw_files: Raw files for commands: a case's inputs written out, and what a command left read back.
#
# The form is that of `karat.bundles.tensor_files`; inputs are streamed and their digests looked at on the way, so that
# a damaged case is noticed before anything runs.


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a command left."""

    tensors: Mapping[str, TensorExtent]
    """By the name of the expected tensor, or whatever else the command called it."""
    problems: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    """Files that are no expected tensor's."""


def write_inputs(
    case: Case, records: Sequence[TensorRecord], folder: Path, *, verify: bool
) -> None:
    """The inputs in the raw form; `Damaged` if they are not what was captured."""
    files = file_names(record.name for record in records)
    rows = []
    with Spool(case) as spool:
        for record in records:
            plain, own = _copy(spool.tensor(record.name), folder / files[record.name])
            if verify and own != record.sha256:
                raise Damaged(f"{record.name}: expected the digest {record.sha256}, found {own}")
            rows.append(_row(record, plain, files[record.name]))
    (folder / TABLE).write_bytes(encode_rows(rows))


def write_expected_list(records: Sequence[TensorRecord], path: Path) -> None:
    """What the command is expected to leave: names, dtypes, shapes and files, and no digest."""
    files = file_names(record.name for record in records)
    path.write_bytes(encode_rows(_row(record, "", files[record.name]) for record in records))


def _row(record: TensorRecord, digest_of_bytes: str, file: str) -> RawRow:
    return RawRow(
        role=record.role, name=record.name, dtype=record.dtype, shape=record.shape,
        nbytes=record.nbytes, sha256=digest_of_bytes, file=file,
    )  # fmt: skip


def _copy(tensor: TensorExtent, path: Path) -> tuple[str, str]:
    """Writes the elements; their plain sha256, and the tensor's digest."""
    plain, own = sha256(), blocks.start(tensor.dtype, tensor.shape)
    with path.open("xb") as file:
        for block in blocks.blocks(tensor.extent):
            plain.update(block)
            own.update(block)
            file.write(block)
    return plain.hexdigest(), str(own.hexdigest())


def read_outputs(folder: Path, expected: Sequence[TensorRecord]) -> Outputs:
    """What a command left.

    With a table, names, dtypes and shapes are the table's. Without one, files go by the names that the
    expected tensors have in the raw form, and are taken for what is expected.
    """
    if (folder / TABLE).exists():
        try:
            rows = read_raw(folder)
        except Damaged as error:
            return Outputs(tensors={}, problems=(str(error),))
        return Outputs(tensors={_expected_name(row.name): tensor for row, tensor in rows})
    return _bare_files(folder, expected)


def _bare_files(folder: Path, expected: Sequence[TensorRecord]) -> Outputs:
    files = file_names(record.name for record in expected)
    tensors, problems = {}, []
    for record in expected:
        path = folder / files[record.name]
        if path.is_file() and path.stat().st_size == record.nbytes:
            extent = _extent(path)
            tensors[record.name] = TensorExtent(
                dtype=record.dtype, shape=record.shape, extent=extent
            )
        elif path.exists():
            problems.append(_wrong_size(path, record))
    known = set(files.values())
    extra = tuple(path.name for path in sorted(folder.glob("*.bin")) if path.name not in known)
    return Outputs(tensors=tensors, problems=tuple(problems), extra=extra)


def _wrong_size(path: Path, record: TensorRecord) -> str:
    found = f"{path.stat().st_size:,} bytes" if path.is_file() else "no plain file"
    return (
        f"{path.name}: expected {record.nbytes:,} bytes ({record.dtype} {shape_text(record.shape)}), "
        f"found {found}; a {TABLE} beside it can say another dtype or shape"
    )


def _expected_name(name: str) -> str:
    """`output/0` stands for `expected/0`."""
    first, slash, rest = name.partition("/")
    return f"expected{slash}{rest}" if first == "output" else name


def _extent(path: Path) -> FileExtent:
    size = path.stat().st_size
    return FileExtent(path=path, start=0, size=size, file_size=size, name=path.name)


# DOC-HERE functions: A station that calls a function, in a process of its own that a new one replaces when it is gone.


class FunctionStation:
    """Hands cases to a worker; one that crashed or hung is replaced for the next case."""

    def __init__(
        self, hello: Hello, workplaces: Workplaces, *, timeout: float | None, isolated: bool
    ) -> None:
        self._hello, self._workplaces = hello, workplaces
        self._timeout, self._isolated = timeout, isolated
        self._worker: Worker | None = None

    def prepare(self) -> None:
        """Start the worker; `UsageError` if the function cannot be had."""
        if self._worker is None:
            self._worker = Worker(self._hello)

    def replay(self, case: Case) -> Replayed:
        """What became of the case, also if the worker did not live to tell."""
        work = self._workplaces.folder(case.path)
        started = time.monotonic()
        self.prepare()
        job = Job(path=case.path, work=str(work), keep=self._workplaces.kept)
        try:
            replayed = self._tried(case, job)
        finally:
            kept = self._workplaces.done(work)
        took = time.monotonic() - started
        return msgspec.structs.replace(replayed, seconds=replayed.seconds or took, work=kept)

    def _tried(self, case: Case, job: Job) -> Replayed:
        if self._worker is None:
            raise RuntimeError("a worker was prepared and is not there")
        try:
            replayed = self._worker.replay(job, self._timeout)
        except Lost as lost:
            self._drop()
            printed = tail(Path(job.work) / LOG_FUNCTIONS)
            return failed(case, f"expected {self._hello.function} to return, but {lost}{printed}")
        if self._isolated:
            self._drop()
        return replayed

    def _drop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def stop(self) -> None:
        """End the worker; whoever waits for it is told that it is gone."""
        worker = self._worker
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """Let go of the worker."""
        self._drop()


# DOC-HERE commands: A station that runs a command: files in, files out, compared tensor by tensor without loading them whole.

LOG = "log.txt"


class CommandStation:
    """Runs one command after the other."""

    def __init__(
        self, command: Command, judging: Judging, workplaces: Workplaces, timeout: float | None
    ) -> None:
        self._command, self._judging = command, judging
        self._workplaces, self._timeout = workplaces, timeout
        self._process: subprocess.Popen[bytes] | None = None

    def replay(self, case: Case) -> Replayed:
        """What became of the case."""
        work = self._workplaces.folder(case.path)
        started = time.monotonic()
        try:
            replayed = self._replay(case, work)
        except Damaged as damage:
            replayed = damaged(case, str(damage))
        except (KaratError, OSError) as error:
            replayed = out_of_reach(case, error)
        finally:
            kept = self._workplaces.done(work)
        return msgspec.structs.replace(replayed, seconds=time.monotonic() - started, work=kept)

    def _replay(self, case: Case, work: Path) -> Replayed:
        records = case.manifest.tensors
        if case.manifest.program is None and uses(self._command, "program"):
            return failed(
                case, "the command asks for {program}, but the case was captured without one"
            )
        places = self._prepared(case, work)
        if self._judging.verify:
            verify_expected(case)
        problem = self._run(filled(self._command, places), work / LOG)
        if problem:
            printed = tail(work / LOG)
            return failed(case, f"expected the command to end with 0, but {problem}{printed}")
        expected = [record for record in records if record.role == "expected"]
        return self._judged(case, expected, read_outputs(work / "outputs", expected))

    def _prepared(self, case: Case, work: Path) -> dict[str, str]:
        """The files that the command is given; the outputs' folder is empty."""
        records = case.manifest.tensors
        for name in ("inputs", "outputs", "program"):
            (work / name).mkdir()
        inputs = [record for record in records if record.role == "input"]
        write_inputs(case, inputs, work / "inputs", verify=self._judging.verify)
        expected = [record for record in records if record.role == "expected"]
        write_expected_list(expected, work / "expected.txt")
        (work / manifests.NAME).write_bytes(manifests.encode(case.manifest))
        program = case.manifest.program
        if program is not None:
            case.copy_program(work / "program" / Path(program.file).name)
        return {
            "program": str(work / "program" / Path(program.file).name) if program else "",
            "inputs": str(work / "inputs"),
            "outputs": str(work / "outputs"),
            "expected": str(work / "expected.txt"),
            "manifest": str(work / manifests.NAME),
        }

    def _run(self, words: list[str], log: Path) -> str | None:
        """Run it to its end; what went wrong, or None."""
        try:
            with log.open("wb") as file:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            return f"it could not be started: {error.strerror or error}"
        started = time.monotonic()
        status = end_of(self._process, patience=self._timeout)
        took = time.monotonic() - started
        if status < 0 and self._timeout and took >= self._timeout:
            return f"it took longer than {self._timeout:g} s"
        return ending(status) if status else None

    def _judged(self, case: Case, expected: list[TensorRecord], outputs: Outputs) -> Replayed:
        measure = measure_of(case.manifest, self._judging, case.path)
        comparisons = tuple(self._compared(case, expected, outputs))
        nothing_left = bool(expected) and not comparisons
        found = [finding for comparison in comparisons for finding in comparison.findings]
        found += () if nothing_left else _lost(expected, outputs)
        found += [*_not_asked_for(expected, outputs), *measure.findings]
        found += values_outside_tensors(case.manifest)
        if not expected:
            found.append(nothing_compared(case.path, "the case expects no tensor"))
        findings = placed(found, case.path)
        if nothing_left:
            problem = "; ".join(outputs.problems) or "it left no output"
            return failed(case, f"expected outputs in {{outputs}}, but {problem}", *findings)
        return Replayed(
            path=case.path,
            identity=case.manifest.identity,
            outcome=outcome_of(comparisons, findings),
            comparisons=tuple(with_origin(c, self._judging) for c in comparisons),
            findings=findings,
        )

    def _compared(
        self, case: Case, expected: list[TensorRecord], outputs: Outputs
    ) -> Iterator[Comparison]:
        measure = measure_of(case.manifest, self._judging, case.path)
        with Spool(case) as spool:
            for record in expected:
                if record.name in outputs.tensors:
                    yield compare_tensors(
                        record.name,
                        spool.tensor(record.name),
                        outputs.tensors[record.name],
                        rtol=measure.rtol,
                        atol=measure.atol,
                        equal_nan=measure.equal_nan,
                        check_dtype=measure.check_dtype,
                    )

    def stop(self) -> None:
        """End the command that runs, and what it started."""
        if self._process is not None:
            kill_group(self._process)

    def close(self) -> None:
        """Nothing is held between commands."""


def _lost(expected: list[TensorRecord], outputs: Outputs) -> Iterator[Finding]:
    for problem in outputs.problems:
        yield Finding(kind="shape-changed", severity=Severity.FAIL, message=problem)
    if outputs.problems:
        return
    for record in expected:
        if record.name not in outputs.tensors:
            yield Finding(
                kind="lost-tensor",
                severity=Severity.FAIL,
                metric=record.name,
                message=f"{record.name}: expected it among the outputs, found none",
            )


def _not_asked_for(expected: list[TensorRecord], outputs: Outputs) -> Iterator[Finding]:
    known = {record.name for record in expected}
    extra = [name for name in outputs.tensors if name not in known]
    for name in (*extra, *outputs.extra):
        yield Finding(
            kind="gained-tensor",
            severity=Severity.FAIL,
            message=f"{name}: expected {len(known)} outputs, found one more that nobody expects",
        )
