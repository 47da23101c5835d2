"""Packing: the cases of capture directories as zips that any machine can verify.

Every case becomes a zip of its own, several at a time; each byte is held against the case's manifest as it is
packed, and nothing is published before all have been. The combined zip takes the packed members over as they
lie, so bytes are read and compressed once, and its bytes depend on the cases alone: not on order, umask,
clock, time zone or number of jobs.

OUT/cases/suite/flow/case.zip
OUT/golden_artifacts_yymmddHH.zip
OUT/SHA256SUMS                      what `sha256sum -c` reads; a folder without it was not finished
OUT/.karat-pack-*                   a pack in progress, or one that was killed: the next one removes it
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from karat.bundles.cases import Case
from karat.bundles.layout import SUMS
from karat.bundles.places import BadPlace, open_place
from karat.findings import CannotVerify, ExitCode, Finding, Severity, UsageError, exit_code, fail
from karat.report.words import byte_size, count, grouped_lines
from karat.store.survey import Survey, survey
from karat.store.zips import CombinedZip, Compression, PackedCase, PackedFile, pack_case
from karat.system.command import Command
from karat.system.files import sync_folder, write_bytes
from karat.system.hashes import is_sha256
from karat.system.locks import lock
from karat.system.processes import available_cores
from karat.tensors.tensor import Damaged

Progress = Callable[[int, int], None]
SCHEMA = "karat.pack/1"
STAGING = ".karat-pack-"


class PackOptions(msgspec.Struct, frozen=True, kw_only=True):
    output: str
    combined: str  # The file name of the combined zip.
    compression: Compression = "stored"
    keep_going: bool = False
    require_program: bool = False
    jobs: int = 0  # 0: as many as there are cores.


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    directories: tuple[str, ...]
    output: str
    state: str = "refused"  # `written`; `refused`: something failed, and OUT is as it was.
    outputs: tuple[PackedFile, ...] = ()
    found: int  # Cases there were.
    packed: int = 0  # Cases in the zips.
    tensors: int = 0
    size: int = 0  # Bytes of the files of all packed cases.
    findings: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        return exit_code(self.findings)


_Outcome = tuple[Case, PackedCase | None, tuple[Finding, ...]]


def pack(directories: Sequence[str], options: PackOptions, progress: Progress | None = None) -> Packed:
    """Pack everything that capture directories hold, or say why not."""
    if "" in {options.output, *directories}:  # Path("") is this folder; nobody who wrote "$CAPTURES" meant that
        said = "expected a folder, found an empty word"
        raise UsageError(said, next_command="karat pack --help")
    out = Path(options.output).resolve()
    for directory in directories:
        if out.is_relative_to(Path(directory).resolve()):
            said = f"-o {options.output}: expected a folder outside of what is packed, found one in {directory}"
            raise UsageError(said, next_command="karat pack --help")
    with contextlib.closing(survey(directories, require_program=options.require_program)) as found:
        refused = Packed(directories=tuple(directories), output=options.output, found=found.found)
        if not found.found and not found.findings:
            said = f"expected captured cases in {', '.join(directories)}, found none; there is nothing to pack"
            then = str(Command("pytest", f"--karat-capture={directories[0]}"))
            nothing = fail("nothing-compared", said, path=directories[0], next=then)
            return msgspec.structs.replace(refused, findings=(nothing,))
        with staged_output(Path(options.output)) as work:
            # Also if something has failed already: all errors are reported at once, not one per run.
            outcomes, combined = _pack_all(work, found, options, progress)
            findings = [*found.findings, *(finding for _, _, wrong in outcomes for finding in wrong)]
            parts = [part.output for _, part, _ in outcomes if part is not None]
            outputs = [output for output in (*parts, combined) if output is not None]
            failed = any(finding.severity is Severity.FAIL for finding in findings)
            if not outputs or (failed and not options.keep_going):
                return msgspec.structs.replace(refused, findings=tuple(findings))
            _publish(work, Path(options.output), outputs)
        packed = [case for case, part, _ in outcomes if part is not None]
        return msgspec.structs.replace(
            refused,
            state="written",
            outputs=tuple(sorted(outputs, key=lambda output: output.path)),
            packed=len(packed),
            tensors=sum(len(case.manifest.tensors) for case in packed),
            size=_size(packed),
            findings=tuple(findings),
        )


def _pack_all(
    work: Path, found: Survey, options: PackOptions, progress: Progress | None
) -> tuple[list[_Outcome], PackedFile | None]:
    """Every case, in order; and all of them in one."""
    total, done = _size(found.candidates), 0
    lock, stopped = threading.Lock(), threading.Event()

    def count_bytes(packed: int) -> None:
        """Also stops whoever counts once packing was stopped, however large the case."""
        nonlocal done
        with lock:
            if stopped.is_set():
                raise InterruptedError("packing was stopped")
            done += packed
            if progress is not None:
                progress(done, total)

    def pack_one(case: Case) -> _Outcome:
        file = work / "cases" / f"{case.path}.zip"
        try:
            part = pack_case(case, file, options.compression, count_bytes)
            wrong = part.wrong
            if part.output is not None:
                _check_opens(file, options.compression)
        except Damaged as damage:
            part, wrong = None, (str(damage),)
        path, root = case.path, case.place.name
        named = (said if said.startswith(path) else f"{path}: {said}" for said in wrong)
        then = str(Command("karat", "verify", root))
        findings = tuple(fail("bundle-damaged", said, path=path, where=root, next=then) for said in named)
        if wrong:
            file.unlink(missing_ok=True)
        return case, None if wrong else part, findings

    outcomes = []
    with contextlib.ExitStack() as stack:
        combined = CombinedZip(work / options.combined)
        stack.callback(combined.close)
        pool = ThreadPoolExecutor(options.jobs or available_cores())
        stack.callback(pool.shutdown, cancel_futures=True)
        stack.callback(stopped.set)
        for outcome in pool.map(pack_one, found.candidates):
            case, part, _ = outcome
            if part is not None:
                combined.take(part, work / "cases" / f"{case.path}.zip")
            outcomes.append(outcome)
        output = combined.finish()
        if output is not None:
            _check_opens(work / output.path, options.compression)
        return outcomes, output


def _size(found: Iterable[Case]) -> int:
    return sum(sum(case.files.values()) for case in found)


def _check_opens(zipped: Path, compression: Compression) -> None:
    """Readers refuse what unpacks to far more than its size; whoever packs it should know first."""
    if compression == "stored":
        return
    try:
        open_place(zipped).close()
    except BadPlace as bad:
        said = f"--compression {compression}: expected a zip that readers open; {bad}"
        raise UsageError(said, next_command="karat pack --help  # stored opens always") from bad


@contextlib.contextmanager
def staged_output(out: Path) -> Iterator[Path]:
    """Create OUT, and in it a hidden folder to work in; if nothing is published, nothing stays.

    Whoever packs holds OUT's lock, so that what else is hidden there was left by a pack that was killed.
    """
    made = [path for path in (out, *out.parents) if not os.path.lexists(path)]
    there = made[-1].parent if made else out
    staging = out / f"{STAGING}{os.urandom(6).hex()}"
    try:
        handle = _hold_output(out)
        if handle is None:
            said = f"-o {out}: expected to be the only `karat pack` into it, found another one running"
            raise UsageError(said, next_command=Command("ls", "-la", str(out)))
        try:
            for left in out.glob(f"{STAGING}*"):
                shutil.rmtree(left, ignore_errors=True)
            standing = min(out.iterdir(), default=None)
            if standing is not None:
                said = f"-o {out}: expected an empty or new folder, found {standing.name} in it"
                raise UsageError(said, next_command=Command("ls", "-la", str(out)))
            staging.mkdir()
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            with contextlib.suppress(OSError):  # a folder that holds something stays
                for path in made:
                    path.rmdir()
            os.close(handle)
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        said = f"expected to write into {out}, but: {error.strerror or error}; nothing was put there"
        look = Command(*(("df", "-h") if full else ("ls", "-ld")), str(there))
        raise CannotVerify(said, next_command=look) from error


def _hold_output(out: Path) -> int | None:
    """OUT, made if need be, and its lock; None while another process packs into it.

    A pack that fails takes the folders away that it made, so that what was just made or locked may be gone again.
    """
    for attempt in range(100):
        with contextlib.ExitStack() as unless_held:
            try:
                out.mkdir(parents=True, exist_ok=True)
                handle = os.open(out, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
                unless_held.callback(os.close, handle)
                if not lock(handle):
                    return None
                if os.path.samestat(os.fstat(handle), out.stat()):
                    unless_held.pop_all()
                    return handle
            except (FileExistsError, FileNotFoundError):
                if attempt == 99 or (os.path.lexists(out) and not out.is_dir()):  # a file, or a link that leads nowhere
                    raise
    return None


def _publish(work: Path, out: Path, outputs: Iterable[PackedFile]) -> None:
    """Move everything into place, SHA256SUMS last: a folder without it was not finished."""
    sums = "".join(f"{o.sha256}  {o.path}\n" for o in sorted(outputs, key=lambda o: o.path))
    write_bytes(work / SUMS, sums.encode())
    for path in [*work.rglob("*/"), work]:
        sync_folder(path)
    names = sorted((path.name for path in work.iterdir()), key=lambda name: name == SUMS)
    try:
        for name in names:
            (work / name).rename(out / name)
        sync_folder(out)
    except BaseException:
        for name in names:
            with contextlib.suppress(OSError):
                (out / name).rename(work / name)
        raise


def read_sums(data: bytes) -> list[tuple[str, str]]:
    """(sha256, path) per line of a SHA256SUMS; ValueError for any other form."""
    found = []
    for number, line in enumerate(data.decode().splitlines(), 1):
        digest, gap, path = line[:64], line[64:66], line[66:]
        if not is_sha256(digest) or gap != "  " or not path or path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"expected a sha256, two spaces and a path in line {number}")
        found.append((digest, path))
    if not data.endswith(b"\n"):
        raise ValueError("expected a newline at the end")
    return found


def lines(packed: Packed) -> Iterator[str]:
    yield from grouped_lines((finding, finding.message) for finding in packed.findings)
    if packed.state != "written":
        yield f"nothing packed: {packed.output} is as it was"
        return
    single = [output.size for output in packed.outputs if output.path.startswith("cases/")]
    for output in packed.outputs:
        if not output.path.startswith("cases/"):
            yield f"{packed.output}/{output.path}  {byte_size(output.size)}  sha256:{output.sha256}"
    if single:
        yield f"{packed.output}/cases/  {count(len(single), 'zip')}  {byte_size(sum(single))}"
    left = f" of {packed.found:,}" if packed.found != packed.packed else ""
    yield (
        f"packed {packed.packed:,}{left} {'case' if packed.found == 1 else 'cases'}, "
        f"{count(packed.tensors, 'tensor')}, {byte_size(packed.size)}"
    )
