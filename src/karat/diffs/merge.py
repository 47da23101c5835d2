"""Three-way merges of goldens, by metric and step where git goes by line; and goldens as lines that read well in a diff.

What one side alone changed is taken; what both changed alike, too. Where both changed one value differently, git's own merge of
lines makes the conflict: of three files that differ in nothing else, so that the markers stand around these values only. In a lock
a golden's line is one value: half of it would be provenance that never was.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from karat.findings import CannotVerify
from karat.goldens import formats, json_text
from karat.goldens.provenance import NAME, decode_lock, encode_lock
from karat.goldens.shapes import Series, Table

_GONE = object()  # A key that a side does not have.
_LABELS = ("ours", "base", "theirs")


def merge(base: bytes, ours: bytes, theirs: bytes, path: str, *, marker_size: int = 7) -> tuple[bytes, bool]:
    """The merged bytes, and whether they are without a conflict."""
    sides = (ours, base, theirs)
    if path.rpartition("/")[2] == NAME:
        try:
            locks: list[Any] = [decode_lock(side, Path(path)) if side.strip() else {} for side in sides]
        except CannotVerify:  # a lock of another version
            return _by_line(sides, marker_size)
        return _merged(locks, encode_lock, marker_size, deep=False)
    parsed = [json_text.parse(side) for side in sides]
    if not all(one.ok and not one.findings and isinstance(one.value, dict) for one in parsed):
        # Added on both sides, broken, or odd: whoever reads the lines decides.
        return _by_line(sides, marker_size)
    # In the style of ours, all three: else each line would be a conflict.
    return _merged([one.value for one in parsed], lambda value: json_text.rewrite(ours, value), marker_size, deep=True)


def _merged(values: list[Any], written: Callable[[Any], bytes], marker_size: int, *, deep: bool) -> tuple[bytes, bool]:
    made = [written(_pick(values[0], values[1], values[2], n, deep=deep)) for n in range(3)]
    return (made[0], True) if made[0] == made[1] == made[2] else _by_line(tuple(made), marker_size)


def _pick(ours: Any, base: Any, theirs: Any, side: int, *, deep: bool, top: bool = True) -> Any:
    """The merged value; where both changed it differently, that of the side (0 ours, 1 base, 2 theirs)."""
    if _same(ours, theirs) or _same(base, theirs):
        return ours
    if _same(base, ours):
        return theirs
    if isinstance(ours, dict) and isinstance(theirs, dict) and isinstance(base, dict) and (deep or top):
        parts = (
            (key, _pick(ours.get(key, _GONE), base.get(key, _GONE), theirs.get(key, _GONE), side, deep=deep, top=False))
            for key in {**ours, **theirs}
        )
        return {key: value for key, value in parts if value is not _GONE}
    return (ours, base, theirs)[side]


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _by_line(sides: tuple[bytes, ...], marker_size: int) -> tuple[bytes, bool]:
    with tempfile.TemporaryDirectory(prefix="karat-") as folder:
        files = [Path(folder) / name for name in _LABELS]
        for file, side in zip(files, sides, strict=True):
            file.write_bytes(side)
        labels = [word for name in _LABELS for word in ("-L", name)]
        words = ["git", "merge-file", "-p", "-q", f"--marker-size={marker_size}", *labels, *map(str, files)]
        done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode > 127 or (done.returncode and not done.stdout):
        said = f"expected git merge-file to merge them, but: {done.stderr.decode('utf-8', 'replace').strip()}"
        raise CannotVerify(said, next_command="git mergetool")
    return done.stdout, done.returncode == 0


def readable(data: bytes, path: str = "") -> Iterator[str]:
    """A golden with a value on each line, and what it is the value of; anything else as it stands."""
    golden = formats.read(data, path).golden
    if isinstance(golden, Series):
        for name, metric in golden.metrics.items():
            pairs = zip(metric.steps.tolist(), metric.values.tolist(), strict=True)
            yield from (f"{name}  step {step}  {value!r}" for step, value in pairs)
        yield from (f"{name}  {value!r}" for name, value in golden.scalars.items())
        yield from (line for name, value in golden.others.items() for line in _leaves(value, name))
    elif isinstance(golden, Table):
        for key, row in golden.rows.items():
            cells = zip(golden.columns, row, strict=True)
            yield from (f"{' '.join(key)}  {name}  {cell}" for name, cell in cells if name not in golden.key)
    elif golden is not None:
        yield from _leaves(golden.value, "")
    else:
        yield from data.decode("utf-8", "replace").splitlines()


def _leaves(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list) and value:
        for n, item in enumerate(value):
            yield from _leaves(item, f"{where}[{n}]")
    else:
        yield f"{where}  {value!r}"
