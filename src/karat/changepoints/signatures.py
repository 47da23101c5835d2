"""Signatures: the name of a crash, the same on two nights on which the same thing went wrong. Pure.

`ImportError: cannot import name 'x' from 'y'`, `SIGSEGV`, `XlaRuntimeError: INTERNAL: …`, `exit code 3`. Only the end of a
long log is searched, which is where a program says what it died of. What differs from night to night is replaced in
messages: addresses, paths, hashes, dates and numbers. Every expression is linear in the length of the line, which is
bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from signal import Signals

TAIL = 1 << 20  # Bytes at the end of an output that are looked at.
TIMED_OUT = "timed out"
OUT_OF_MEMORY = "killed: out of memory"

_TYPE = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"
_RAISED = re.compile(rf"({_TYPE})(?::\s?(.*))?")
_NAMED = re.compile(
    rf"((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Fault|ExceptionGroup)|{_TYPE}\.(?:Timeout|Abort))(?::\s(.*))?"
)
_PYTEST = re.compile(rf"^E\s{{3,}}({_TYPE}(?:Error|Exception|Exit|Warning|Failed|Timeout)|Failed)(?::\s(.*))?")
_FRAME = re.compile(r'File "([^"]{1,1024})", line \d+(?:, in (\S{1,200}))?')
_THROWN = re.compile(r"terminate called after throwing an instance of '([^']{1,300})'")
_CHECK = re.compile(r"(?:\bF\d{4,8} [\d:.]+\s+\d+|: F|\bFATAL\S*) ([^\s:\]]{1,300}):\d+\] ?(.*)")
_FATAL_PYTHON = re.compile(r"^Fatal Python error: (.*)")
_CUDA = re.compile(r"(?:\bCUDA(?: runtime)? error\b|\bcudaError\w+|\bCUDA_ERROR_\w+|\bNCCL error\b|\bhipError\w+).*")
_COMPILER = re.compile(r"(?:([^\s:]{1,300}):(?:\d+:){0,2} ?)?(?:fatal )?error(?:\[\w+\])?: (.+)")
_LINKER = re.compile(r".*(undefined reference to .+|undefined symbol: .+|cannot find -l\S+)")
_COMPLAINT = re.compile(
    r"(?:[^\s\[\]]{0,40}[\s\[]{1,3})?(?:(?:FATAL|ERROR|CRITICAL)(?:\]:?|:|\s)|(?:fatal|error|Error):)\s*(\S.*)"
)
_MEASURED = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?\s?%?")
_SHELL = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
}
_SIGNALLED = re.compile(rf"^(?:.{{0,300}}[\s:])?({'|'.join(_SHELL)})(?: \(core dumped\))?(?:\s.{{0,300}})?$")
_MEMORY = re.compile(r"oom-kill|Out of memory: Kill|Memory cgroup out of memory|OOMKilled|oom_reaper")
_KILLED = re.compile(r"^(?:.{0,300}: line \d+:\s+\d+ )?Killed(?:\s{2,}.{0,300})?$")
LONGEST = 4096  # Characters of a line that are looked at.
_ROOM = 200
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?<=>]{0,64}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]+")
_ADDRESS = re.compile(r"\b0[xX][0-9a-fA-F]+\b")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T _]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?")
_PATH = re.compile(
    r"(?<![\w…/\\.~<-])(?:file://|~|[A-Za-z]:)?[/\\][^\s'\"`:,;()<>\[\]{}|=]*[^\s'\"`:,;()<>\[\]{}|=/\\.]"
)
_TEMPORARY = re.compile(r"\btmp[a-zA-Z0-9_]{5,12}\b")
_HASH = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_])(?<!Errno )(?<!exit code )(?<!exit status )[0-9]+(?:[.,:_][0-9]+)*(?:[eE][+-]?[0-9]+\b)?"
)
"""Not the codes of errors: those say what went wrong."""
_BYTES = re.compile(r"\bN (?:[KMGT]i?|k)?B\b")
# What CI and container engines put before a line.
_STAMP = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s|$)")
_SPACES = re.compile(r"\s+")
_IN_GROUP = re.compile(r"^ +[|+] ?")  # What stands before each line of an exception group.


def without_ansi(line: str) -> str:
    """A line as a terminal finally shows it: no colours, no control characters, progress bars overwritten."""
    shown = line[-LONGEST:].rstrip("\r\n")
    if "\x1b" in shown:
        shown = _ANSI.sub("", shown)
    shown = shown.rpartition("\r")[2]
    return _CONTROL.sub(" ", shown) if _CONTROL.search(shown) else shown


def normalise(message: str) -> str:
    """A message without what differs from night to night; idempotent."""
    text = without_ansi(message)[:LONGEST]
    text = _TIME.sub("TIME", _UUID.sub("UUID", _ADDRESS.sub("ADDRESS", text)))
    # A path by its last name: folders differ from machine to machine.
    text = _PATH.sub(lambda match: "…/" + re.split(r"[/\\]", match.group())[-1], text)
    text = _TEMPORARY.sub("TMP", _HASH.sub("HASH", text))
    # 900 MiB on one night are 1.2 GiB on the next.
    text = _BYTES.sub("N bytes", _NUMBER.sub("N", text))
    text = _SPACES.sub(" ", text).strip()
    return text if len(text) <= _ROOM else f"{text[: _ROOM - 1].rstrip()}…"


def signature(
    output: bytes | str, *, exit_code: int | None = None, signal: int | None = None, timed_out: bool = False
) -> str:
    """The name of a crash; never empty."""
    if timed_out:
        return TIMED_OUT
    killed_by = _signal_name(exit_code, signal)
    said = find_signature(output)
    # What was said may be why the signal came; a handled exception before it is not.
    explains = said in _SHELL.values() or said.startswith("Fatal Python error")
    if killed_by == "SIGKILL":
        explains = said == OUT_OF_MEMORY
    elif killed_by in {"SIGABRT", "SIGTRAP", "SIGILL"}:
        explains = bool(said) and not said.startswith("stopped in ")
    if killed_by and not explains:
        return killed_by
    return said or killed_by or ("no error message" if exit_code is None else f"exit code {exit_code}")


def find_signature(output: bytes | str) -> str:
    """What a text says that its program died of; empty if it says nothing of the kind."""
    found: dict[int, str] = {}
    text = output[-TAIL:] if isinstance(output, str) else output[-TAIL:].decode("utf-8", "replace")
    lines = [_IN_GROUP.sub("", _STAMP.sub("", without_ansi(line))) for line in text.split("\n")]
    for rank, said in _clues(lines):
        # An abort is what became of an exception that was said before it; of errors, the first counts.
        if rank not in found or (rank != 1 and (rank, said) != (0, "SIGABRT")):
            found[rank] = said
    return found[min(found)] if found else ""


def _signal_name(exit_code: int | None, signal: int | None) -> str:
    """`SIGSEGV`; a shell tells of a signal by an exit code above 128."""
    if signal is None and exit_code is not None and (exit_code < 0 or 128 < exit_code <= 128 + 64):
        signal = -exit_code if exit_code < 0 else exit_code - 128
    if signal is None:
        return ""
    try:
        return Signals(signal).name
    except ValueError:
        return f"signal {signal}"


def _clues(lines: list[str]) -> Iterator[tuple[int, str]]:
    """What may be what it died of, from the first line to the last; each with its rank: 0 says more than 1, and so on."""
    at = 0
    while at < len(lines):
        line = lines[at]
        if "Traceback (most recent" in line:
            at, raised = _traceback(lines, at)
            if raised:
                yield 0, raised
            continue
        at += 1
        text = line.strip()
        # What one line, outside of a traceback, says.
        if strong := text and _strong(text, line, lines[at : at + 3]):
            yield 0, strong
        elif match := _FRAME.match(text):
            name = re.split(r"[/\\]", match[1])[-1]
            yield 3, normalise(f"stopped in {name}" + (f", {match[2]}" if match[2] else ""))
        elif match := _COMPILER.fullmatch(text) or _LINKER.fullmatch(text) or _COMPLAINT.fullmatch(text):
            message = match[match.re.groups]
            if not _MEASURED.fullmatch(message):  # `error: 0.003` is a measurement, and no complaint
                yield 2 if match.re is _COMPLAINT else 1, f"error: {normalise(message)}"


def _traceback(lines: list[str], at: int) -> tuple[int, str]:
    """The exception at the end of a traceback, and where to go on; nothing if it is cut off."""
    # What a launcher or a logger puts before each line.
    prefix = lines[at].partition("Traceback (most recent")[0]
    for number in range(at + 1, len(lines)):
        if "Traceback (most recent" in lines[number]:
            return number, ""
        text = lines[number].removeprefix(prefix)
        if text and not text[0].isspace() and not text.startswith(("-", "^", "~")):
            match = _RAISED.fullmatch(text)
            return number + 1, _named(match[1], match[2]) if match else ""
    return len(lines), ""


def _strong(text: str, line: str, after: list[str]) -> str:
    """A line that names what the program died of; empty for any other."""
    for word, pattern, say in _STRONG:
        if word in text and (match := pattern.search(text)):
            return say(match, after)
    # An exception that stands at the beginning of a line, as at the end of a traceback whose head is cut off.
    match = _NAMED.fullmatch(line) if ("Error" in line or "Exce" in line or "In" in line) else None
    return _named(match[1], match[2]) if match else ""


def _thrown(match: re.Match[str], after: list[str]) -> str:
    what = next((line.partition("what():")[2] for line in after if "what():" in line), "")
    return _named(match[1].replace("::", "."), what)


_STRONG: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str], list[str]], str]], ...] = (
    ("E  ", _PYTEST, lambda match, _: _named(match[1], match[2])),
    ("terminate called", _THROWN, _thrown),
    ("] ", _CHECK, lambda match, _: normalise(f"{match[2]} ({match[1]})")),
    ("Fatal Python error", _FATAL_PYTHON, lambda m, _: f"Fatal Python error: {normalise(m[1])}"),
    *((word, _SIGNALLED, lambda match, _: _SHELL[match[1]]) for word in _SHELL),
    *((word, _MEMORY, lambda *_: OUT_OF_MEMORY) for word in ("emory", "oom", "OOM")),
    ("Killed", _KILLED, lambda *_: "SIGKILL"),
    *((word, _CUDA, lambda match, _: normalise(match[0])) for word in ("CUDA", "cudaError", "NCCL error", "hipError")),
)
"""A word that must be in the line, which is quick to look for, the expression, and what it says of the crash."""


def _named(kind: str, message: str | None) -> str:
    """Type and message; the module of a type moves from release to release, so its name alone counts."""
    name = kind.rpartition(".")[2]
    said = normalise(message or "")
    return f"{name}: {said}" if said else name
