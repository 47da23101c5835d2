"""The prefilter: files are read in several processes, and parsed only if they can matter.

A class is an op test because its bases lead to a root. The file that names the root spells its name; any other
reaches it by importing a file that matters. So a file with neither needs no parser (which halves the time of a scan),
and a file with an import is parsed once the file it imports is known to matter and it spells a name that means an op
test there.

A worker is this interpreter started anew (`python -P -m karat.policy.scan.prefilter`), which is safe whatever threads
the caller has. It gets its files in one message and answers in one, both msgpack. Files that a worker did not answer
for, because it died or could not start, are read here: workers make a scan faster, never different.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from karat.policy.scan.facts import FileFacts
from karat.policy.scan.source import words
from karat.policy.scan.syntax import facts_of
from karat.policy.scan.vocabulary import MARK
from karat.system.foreign.limits import SOURCE, read_plain
from karat.system.processes import available_cores

_IMPORT = re.compile(rb"import\b")
_FROM = re.compile(rb"\bfrom\b")
_MODULE = re.compile(rb"(?:[ \t\f.\w\x80-\xff]|\\\r?\n)*")
_LISTED = re.compile(rb"[ \t\f]*(?:\\\r?\n[ \t\f]*)*\(((?:[\w\s,.*\\\x80-\xff]|\#[^\n]*)*)")
_LINE = re.compile(rb"(?:[^\n;\#()\\]|\\\r?\n|\\)*")
_COMMENT = re.compile(rb"\#[^\n]*")
_CONTINUED = re.compile(rb"\\\r?\n")
_DOTS = re.compile(rb"(?<![ \t\f])[ \t\f]*\.[ \t\f]*")
_NAME = re.compile(rb"\s*([\w.\x80-\xff]+)")
_WORD = re.compile(rb"[\w\x80-\xff]\Z")
_SPACE = b" \t\f\r\n"
_WORDS = re.compile(rb"[\w\x80-\xff]+")
_FILES_PER_WORKER = 150  # Below this many files another process would cost more than it saves.
_MOST_WORKERS = 16

Progress = Callable[[int, int], None]


class Glance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a first look at one file gave."""

    path: str
    facts: FileFacts | None = None  # None for a file that can only matter through its imports.
    imports: tuple[str, ...] = ()  # Modules that it may import, as its statements name them.
    error: str = ""  # Why it could not be read.
    marked: bool = False  # It names something of op tests.


def look(
    paths: Sequence[str], *, roots: Sequence[str] = (), jobs: int | None = None, progress: Progress | None = None
) -> list[Glance]:
    """A glance at every file, in order; `jobs` None for as many processes as help."""
    if jobs is None:
        jobs = min(available_cores(), _MOST_WORKERS, len(paths) // _FILES_PER_WORKER)
    count = max(1, min(jobs, len(paths)))
    shares = [list(paths[number::count]) for number in range(count)]
    workers = [_start(share, roots) for share in shares[1:]]
    answers = [_here(shares[0], roots, progress, len(paths))]
    for share, worker in zip(shares[1:], workers, strict=True):
        answers.append(_answer(worker, share, roots) or _here(share, roots, None, 0))
    if progress is not None:
        progress(len(paths), len(paths))
    found = {each.path: each for answer in answers for each in answer}
    return [found[path] for path in paths]


def glance(path: str, roots: Collection[str] = ()) -> Glance:
    """Read a file, and parse it if it names what op tests are made of."""
    try:
        source = read_plain(path, SOURCE)
    except OSError as error:
        return Glance(path=path, error=error.strerror or str(error))
    plain = words(source)
    marked = MARK.search(plain) is not None
    if marked or any(root.rpartition(".")[2].encode() in plain for root in roots):
        return Glance(path=path, facts=facts_of(source, path), marked=True)
    try:
        return Glance(path=path, imports=tuple(sorted(imported_modules(plain))))
    except Tangled:
        return Glance(path=path, facts=facts_of(source, path))


def spelled(path: str) -> frozenset[str]:
    """Every word of a file; none if it has gone meanwhile."""
    try:
        found = set(_WORDS.findall(words(read_plain(path, SOURCE))))
    except OSError:
        return frozenset()
    return frozenset(word.decode("utf-8", "replace") for word in found)


def parsed(path: str) -> FileFacts:
    """The facts of a file that turned out to matter."""
    try:
        return facts_of(read_plain(path, SOURCE), path)
    except OSError as error:
        return FileFacts(path=path, problem=error.strerror or str(error))


class Tangled(Exception):  # noqa: N818 - a state of the text
    """So much of the text may be an import, over and over, that parsing it is quicker."""


def imported_modules(source: bytes) -> frozenset[str]:
    """Every module that the file may import: `a`, `a.b` and `a.b.c` for `from a.b import c`; leading dots are levels up.

    Whatever may be an import statement counts, in strings and comments as well: too many do no harm, since a module
    counts only if its file is there and holds what is looked for.
    """
    statements: set[bytes] = set()
    budget = 4 * len(source) + 100_000
    for match in _IMPORT.finditer(source):
        begin = match.start()
        if _WORD.match(source[begin - 1 : begin]):
            continue
        line = _line_start(source, begin)
        budget -= begin - line
        if budget < 0:
            raise Tangled
        module, continued = _from(source[line:begin])
        listed = _LISTED.match(source, match.end()) if module else None
        text = listed[1] if listed else (_LINE.match(source, match.end()) or match)[0]
        budget -= len(text)
        plain = _CONTINUED.sub(b" ", _COMMENT.sub(b"", text) if b"#" in text else text)
        parts = map(_NAME.match, _DOTS.sub(b".", plain).split(b","))
        names = [part[1] for part in parts if part]
        if module:
            statements.add(module)
            dot = b"" if module.endswith(b".") else b"."
            statements.update(module + dot + name for name in names)
        if not module or continued:
            # A comment may end in a backslash, and the import after it is then one of its own.
            statements.update(names)
    found: set[str] = set()
    for module in statements:
        budget -= len(module) * module.count(b".")
        if budget < 0:
            raise Tangled
        text = module.decode("utf-8", "replace")
        found.add(text)
        while "." in text.strip("."):
            text = text.rpartition(".")[0] if not text.endswith(".") else text[:-1]
            if text.strip("."):
                found.add(text)
    return frozenset(found)


def _line_start(source: bytes, end: int) -> int:
    """Where the line begins that a place is on, with the lines that it continues."""
    begin = source.rfind(b"\n", 0, end) + 1
    while begin > 1 and source.endswith((b"\\\n", b"\\\r\n"), 0, begin):
        begin = source.rfind(b"\n", 0, begin - 1) + 1
    return begin


def _from(line: bytes) -> tuple[bytes, bool]:
    """The text between `from` and `import`, and whether it spans several lines; nothing for a plain import."""
    at, word = len(line), None
    while word is None and at >= 0:  # the last one: what is before it is not of this statement
        at = line.rfind(b"from", 0, at)
        word = _FROM.match(line, at) if at >= 0 else None
    match = _MODULE.fullmatch(line, word.end()) if word else None
    if match is None:
        return b"", False
    text = match[0]
    return _DOTS.sub(b".", _CONTINUED.sub(b" ", text)).strip(_SPACE), b"\n" in text


def _here(paths: Sequence[str], roots: Sequence[str], progress: Progress | None, total: int) -> list[Glance]:
    done = []
    with no_collection():
        for number, path in enumerate(paths):
            done.append(glance(path, roots))
            if progress is not None and number % 50 == 0:
                progress(number * total // len(paths), total)
    return done


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the cyclic collector: syntax trees have no cycles, and it would go over them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _start(paths: Sequence[str], roots: Sequence[str]) -> subprocess.Popen[bytes] | None:
    if not sys.executable:
        return None
    # -P: the scanned tree may be the current folder, and must not be imported from.
    here = os.getcwd()  # noqa: PTH109
    path = os.pathsep.join(entry for entry in sys.path if os.path.isabs(entry) and entry != here)  # noqa: PTH117
    message = msgspec.msgpack.encode((tuple(map(os.fsencode, paths)), tuple(roots)))
    try:
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "karat.policy.scan.prefilter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
    except OSError:
        return None
    try:
        assert worker.stdin is not None  # noqa: S101 - a pipe was asked for
        with worker.stdin as pipe:
            pipe.write(message)
    except OSError:
        pass  # it died at once; its answer will be missing
    return worker


def _answer(worker: subprocess.Popen[bytes] | None, paths: Sequence[str], roots: Sequence[str]) -> list[Glance] | None:
    if worker is None:
        return None
    assert worker.stdout is not None  # noqa: S101 - a pipe was asked for
    with worker.stdout as pipe:
        data = pipe.read()
    worker.wait()
    try:
        answers = msgspec.msgpack.decode(data, type=list[bytes | None])
        found = [msgspec.msgpack.decode(one, type=Glance) if one is not None else None for one in answers]
    except msgspec.DecodeError:
        return None
    if worker.returncode != 0 or len(found) != len(paths):
        return None
    return [
        _with_path(one, path) if one is not None else glance(path, roots)
        for one, path in zip(found, paths, strict=True)
    ]


def _with_path(one: Glance, path: str) -> Glance:
    """With another path: workers send none, since a name that is not UTF-8 does not travel as text."""
    facts = one.facts and msgspec.structs.replace(one.facts, path=path)
    return msgspec.structs.replace(one, path=path, facts=facts)


def main() -> None:
    """Answer one message, as a worker."""
    paths, roots = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=tuple[list[bytes], list[str]])
    answers: list[bytes | None] = []
    with no_collection():
        for path in paths:
            try:
                answers.append(msgspec.msgpack.encode(_with_path(glance(os.fsdecode(path), roots), "")))
            except UnicodeEncodeError:
                # A literal with a lone surrogate, which msgpack has no text for: the caller reads the file.
                answers.append(None)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answers))


if __name__ == "__main__":
    main()
