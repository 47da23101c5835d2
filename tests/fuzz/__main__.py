"""Fuzzing: every reader of what others wrote, for a while. `make fuzz TIME=600`.

Each reader gets its share of the time, in turns, in a process of its own with a limit of memory. An input is a function of
the seed, the reader and its number alone; what fails is printed with the command that repeats it, made smaller, and kept
under build/fuzz.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from fuzz.mutations import mutated, smaller
from fuzz.readers import READERS, Reader

MEMORY, SECONDS = 1 << 30, 5.0
"""What one input may take: bytes beyond those of the process without it, and processor time."""
WAITING = 30.0
"""Seconds after which an input that does not use the processor counts as endless, too."""
_KEPT = Path("build/fuzz")
_FORK = multiprocessing.get_context("fork")


def _folder() -> tempfile.TemporaryDirectory[str]:
    """In memory where there is room for it: most of the time would go into files."""
    memory = "/dev/shm"  # noqa: S108 - the folder in it has a name of its own
    return tempfile.TemporaryDirectory(prefix="karat-fuzz-", dir=memory if os.access(memory, os.W_OK) else None)


@dataclass(kw_only=True)
class Turn:
    """One reader for a while; what came of it."""

    reader: str
    first: int
    inputs: int = 0
    accepted: int = 0
    """Inputs that were read without an error of karat's."""
    peak: int = 0
    """Bytes that the process took at most."""
    slowest: tuple[float, int] = (0.0, 0)
    defects: list[Defect] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Defect:
    """An input that ended in anything else than an answer or an error of karat's."""

    reader: str
    number: int
    what: str
    where: str
    data: bytes
    trace: str = ""


def input_of(reader: Reader, seed: int, name: str, number: int) -> bytes:
    return mutated(reader.seeds, random.Random(f"{seed} {name} {number}"))


def attempt(reader: Reader, data: bytes) -> tuple[bool, BaseException | None]:
    """Whether it was accepted; and what it ended in, if that is a defect."""
    try:
        reader.read(data)
    except reader.told:
        return False, None
    except Exception as error:  # noqa: BLE001 - any other is what is looked for
        return False, error
    return True, None


def place_of(error: BaseException) -> str:
    """The kind of an error and where it was raised, in karat's own code if any of it is there."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}karat{os.sep}" in frame.filename] or frames
    frame = own[-1]
    return f"{type(error).__name__} in {Path(frame.filename).name}:{frame.name}"


def work(turn: Turn, seed: int, seconds: float, now: Any, answer: Any) -> None:
    """In a process of its own: one reader, input after input."""
    with _folder() as folder:
        os.chdir(folder)
        reader = READERS[turn.reader](Path(folder))
        base = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (base + MEMORY, base + MEMORY))
        seen: set[str] = set()
        end = time.monotonic() + seconds
        number = turn.first
        before = time.monotonic()
        while before < end:
            now.value = number
            data = input_of(reader, seed, turn.reader, number)
            accepted, error = attempt(reader, data)
            turn.accepted += accepted
            after = time.monotonic()
            turn.slowest = max(turn.slowest, (after - before, number))
            if error is not None and (where := place_of(error)) not in seen:
                seen.add(where)
                turn.defects.append(_defect(reader, turn.reader, number, data, error))
                after = time.monotonic()
            number, before = number + 1, after
        turn.inputs = number - turn.first
        turn.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        os.chdir("/")
    answer.send(turn)
    answer.close()


def _defect(reader: Reader, name: str, number: int, data: bytes, error: BaseException) -> Defect:
    where, until = place_of(error), time.monotonic() + 3.0

    def still(shorter: bytes) -> bool:
        if time.monotonic() > until:
            return False
        again = attempt(reader, shorter)[1]
        return again is not None and place_of(again) == where

    trace = "".join(traceback.format_exception(error)[-6:])
    return Defect(
        reader=name, number=number, what=f"{type(error).__name__}: {error}"[:300], where=where, data=smaller(data, still), trace=trace
    )  # fmt: skip


@dataclass(kw_only=True)
class Worker:
    """A turn under way."""

    turn: Turn
    process: Any
    answer: Any
    now: Synchronized[int]
    seen: int = -1
    since: float = 0.0
    used: float = 0.0
    until: float = 0.0

    def stuck(self) -> str:
        """Why the input in hand is too slow; nothing while it is not."""
        used, clock = _processor_time(self.process.pid), time.monotonic()
        if self.now.value != self.seen:
            self.seen, self.since, self.used = self.now.value, clock, used
        elif self.seen >= 0 and used - self.used > SECONDS:
            return f"it takes more than {SECONDS:g} s of the processor"
        elif self.seen >= 0 and clock - self.since > WAITING + 20 * (used - self.used):
            return f"it does nothing for {WAITING:g} s"
        return ""


def _processor_time(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def start(turn: Turn, seed: int, seconds: float) -> Worker:
    mine, theirs = _FORK.Pipe(duplex=False)
    now = _FORK.Value(ctypes.c_longlong, -1)
    process = _FORK.Process(target=work, args=(turn, seed, seconds, now, theirs))
    process.start()
    theirs.close()
    return Worker(turn=turn, process=process, answer=mine, now=now, since=time.monotonic())


def finished(worker: Worker, seed: int) -> Turn | None:
    """What came of a turn, once it is over."""
    turn, number = worker.turn, worker.now.value
    why = worker.stuck()
    if worker.answer.poll():
        try:
            turn = worker.answer.recv()
        except EOFError:
            worker.process.join()
            why = f"the process died (exit code {worker.process.exitcode})"
    elif not why:
        return None
    if why and turn is worker.turn:
        worker.process.kill()
        turn.inputs = number - turn.first + 1
        with _folder() as folder:
            data = input_of(READERS[turn.reader](Path(folder)), seed, turn.reader, number) if number >= 0 else b""
        turn.defects.append(Defect(reader=turn.reader, number=number, what=why, where=why, data=data))
    worker.process.join()
    worker.answer.close()
    return turn


def fuzz(names: Sequence[str], seed: int, seconds: float, workers: int) -> Iterator[Turn]:
    """All turns, as they end. Each reader has two or more, so that a short run has something of each."""
    rounds = 1 if seconds * workers < 10 * len(names) else 3
    share = seconds * workers / len(names) / rounds
    waiting = [name for _ in range(rounds) for name in names]
    reached: Counter[str] = Counter()
    busy: list[Worker] = []
    while waiting or busy:
        while len(busy) < workers and waiting:
            free = next((n for n in waiting if all(n != one.turn.reader for one in busy)), None)
            if free is None:
                break
            waiting.remove(free)
            busy.append(start(Turn(reader=free, first=reached[free]), seed, share))
        time.sleep(0.02)
        for worker in list(busy):
            turn = finished(worker, seed)
            if turn is not None:
                busy.remove(worker)
                reached[turn.reader] = turn.first + turn.inputs
                yield turn


def repeat(name: str, seed: int, number: int | None, file: Path | None) -> int:
    """One input, with its traceback."""
    with _folder() as folder:
        data = file.read_bytes() if file else b""
        reader = READERS[name](Path(folder))
        if file is None:
            data = input_of(reader, seed, name, number or 0)
        begun = time.monotonic()
        _, error = attempt(reader, data)
    sys.stdout.write(f"{data[:2000]!r}\n{len(data):,} bytes, {time.monotonic() - begun:.2f} s\n")
    if error is not None:
        traceback.print_exception(error)
    return 0 if error is None else 1


def keep(defect: Defect) -> Path:
    """The input in a file."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    path = _KEPT / f"{defect.reader.replace(' ', '-').replace(chr(39), '')}-{defect.number}"
    path.write_bytes(defect.data)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description="Feed every reader with what strangers might write.")
    parser.add_argument("--time", type=float, default=60.0, help="seconds in all")
    parser.add_argument("--seed", type=int, help="as an earlier run printed it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", action="append", choices=sorted(READERS), metavar="READER")
    parser.add_argument("--input", type=int, help="repeat one input of one reader")
    parser.add_argument("--file", type=Path, help="the same with the bytes of a file")
    said = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if said.seed is None else said.seed
    names = said.only or list(READERS)
    if said.input is not None or said.file is not None:
        return repeat(names[0], seed, said.input, said.file)
    sys.stdout.write(f"{len(names)} readers, {said.time:g} s, {said.workers} processes, --seed {seed}\n")
    totals = {name: Turn(reader=name, first=0) for name in names}
    known: set[tuple[str, str]] = set()
    for turn in fuzz(names, seed, said.time, said.workers):
        total = totals[turn.reader]
        total.inputs, total.accepted = total.inputs + turn.inputs, total.accepted + turn.accepted
        total.peak, total.slowest = max(total.peak, turn.peak), max(total.slowest, turn.slowest)
        for defect in turn.defects:
            if (defect.reader, defect.where) not in known:
                known.add((defect.reader, defect.where))
                sys.stdout.write(
                    f"\nDEFECT {defect.reader}: {defect.what}\n  at {defect.where}, from {defect.data[:200]!r}\n{defect.trace}"
                    f"  again: PYTHONPATH=tests python -m fuzz --only '{defect.reader}' --seed {seed} --input {defect.number}\n"
                    f"  smallest: … --only '{defect.reader}' --file {keep(defect)}\n"
                )
                sys.stdout.flush()
    for total in totals.values():
        sys.stdout.write(
            f"{total.reader:42} {total.inputs:>10,} inputs {total.accepted:>9,} accepted  peak {total.peak >> 20:>5} MB"
            f"  slowest {total.slowest[0]:6.2f} s (input {total.slowest[1]})\n"
        )
    inputs = sum(total.inputs for total in totals.values())
    sys.stdout.write(f"{inputs:,} inputs, {len(known)} defects, --seed {seed}\n")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
