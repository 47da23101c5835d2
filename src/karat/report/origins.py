"""Where the values of a change came from, in the words of the PR text.

The record knows the last refresh; the lock knows every golden. A working tree may hold the values of
several refreshes and of somebody's editor, and the text must not give one run credit for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from karat.compare.change import Diff, Verdict
from karat.goldens.lock import Entry
from karat.goldens.provenance import RefreshRecord
from karat.report.markdown import code, prose
from karat.report.words import short_path

Lines = Mapping[str, Entry]
"""Golden → its line in the lock, of goldens that are still the file it speaks of."""

SOURCES = {"github": "GitHub workflow run", "gitlab": "GitLab pipeline"}
PLACES = {
    "folder": "a folder of results",
    "s3": "a bucket",
    "gs": "a bucket",
    "az": "a bucket",
    "record": "`karat record`",
}
BY_OPTION = "--accept-incomplete"
_NAMED = 8


def place(source: str, run: str | None) -> str:
    """A run by name, or the kind of place that has no runs."""
    if run and source != "record":
        return f"{SOURCES.get(source, prose(source))} {code(run)}"
    return PLACES.get(source, prose(source))


def current(diff: Diff, record: RefreshRecord | None) -> RefreshRecord | None:
    """The record, unless all that its refresh wrote has been committed or put back since."""
    if record is None or not record.files or set(record.files) & set(_changed(diff)):
        return record
    return None


def origin_lines(diff: Diff, record: RefreshRecord, lines: Lines) -> Iterator[str]:
    """What did not come from the last refresh: from which run it is, or that no run is known."""
    others = [p for p in _changed(diff) if p not in {*record.files, *record.confirmed}]
    runs: dict[str, list[str]] = {}
    for path in others:
        if path in lines:
            entry = lines[path]
            runs.setdefault(place(entry.source, entry.run), []).append(path)
    for run, paths in sorted(runs.items()):
        yield f"- {len(paths):,} of them not by this command, but from {run}: {_names(paths, diff)}."
    edited = [p for p in _changed(diff) if p not in lines]
    if edited:
        yield f"- {len(edited):,} of them without provenance, or edited since: {_names(edited, diff)}."


def overruled_lines(diff: Diff, record: RefreshRecord | None, lines: Lines) -> Iterator[str]:
    """What somebody took although karat objects, with the reason where one was given."""
    reasons = {path: lines[path].accepted for path in _changed(diff) if path in lines}
    by_option = {path for path, reason in reasons.items() if reason == BY_OPTION}
    by_option |= set(record.accepted if record else ())
    if by_option:
        yield f"- Taken although incomplete, by `{BY_OPTION}` ({len(by_option)}):"
        yield from (f"  - {code(short_path(path, diff.root))}" for path in sorted(by_option))
    said = {path: reason for path, reason in reasons.items() if reason and reason != BY_OPTION}
    if said:
        yield f"- Staged although karat objects, by `karat stage --force` ({len(said)}):"
        for path, reason in sorted(said.items()):
            yield f"  - {code(short_path(path, diff.root))}: {prose(reason)}"


def _changed(diff: Diff) -> list[str]:
    """The goldens that differ and are there."""
    present = (c for c in diff.changes if c.verdict is not Verdict.REMOVED and not c.same_bytes)
    return sorted(change.path for change in present)


def _names(paths: Iterable[str], diff: Diff) -> str:
    shown = [code(short_path(path, diff.root)) for path in paths]
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return ", ".join(shown[:_NAMED]) + more
