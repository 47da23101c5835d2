"""A diff as Markdown: the report of `karat diff --markdown`, and the pull request text of `karat summary`.

Both begin with the answer. The numbers of the latter are the seed document's; sections that do not apply are dropped,
long lists are folded, and a line of interpretation is written only where the data bears it out. Where values came from
is told with care: the record knows the last refresh, the lock knows every golden. A working tree may hold the values of
several refreshes and of somebody's editor, and the text must not give one run credit for all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from karat.compare.change import Change, MetricChange, Verdict
from karat.diffs.origins import place, runs
from karat.diffs.report.data import counts, csv_rows, ranked_tensors, row_cells, top_rows
from karat.diffs.result import Diff, labels
from karat.findings import Severity
from karat.goldens.provenance import LockEntry, RefreshRecord
from karat.report.markdown import Section, code, fit, prose, table
from karat.report.words import count, few, magnitude, number, short_path, span
from karat.tensors.report import TITLES, cells, type_text

Row = tuple[Change, MetricChange]
BY_OPTION = "--accept-incomplete"

GITHUB_COMMENT = 65_536  # Characters in a GitHub comment; far below the 1 MiB of a step summary, so one text fits both.

_BUCKETS: tuple[tuple[str, Callable[[float], bool]], ...] = (
    ("== 0", lambda x: x == 0),
    ("(0, 1e-6)", lambda x: 0 < x < 1e-6),
    ("[1e-6, 1e-4)", lambda x: 1e-6 <= x < 1e-4),
    ("[1e-4, 1e-3)", lambda x: 1e-4 <= x < 1e-3),
    ("[1e-3, 1e-2)", lambda x: 1e-3 <= x < 1e-2),
    ("[1e-2, 1e-1)", lambda x: 1e-2 <= x < 1e-1),
    (">= 1e-1", lambda x: x >= 1e-1),
)

_SHOWN = 20
_FOLDED = 200
_FOLDED_IN_A_COMMENT = 10  # Names in a folded list; a comment has room for fewer.
_NAMED = 8
_EXAMPLES = 3
_MESSAGE = 1000


def render(diff: Diff, *, top: int = 20) -> str:
    head = f"{code(diff.old)} → {code(diff.new)}: {counts(diff)}"
    head = "\n\n".join([head, *(["\n".join(origin)] if (origin := list(provenance_lines(diff))) else [])])
    sections = [answer(diff), Section("", head), *must_look(diff), gravest_rows(diff, top), gravest_tensors(diff, top)]
    return "\n".join(section.text() for section in sections if section is not None)


def answer(diff: Diff) -> Section:
    return Section("", f"**{diff.answer(code, prose)}**")


def must_look(diff: Diff, folded: int = _FOLDED) -> list[Section]:
    """What a reviewer must look at: what belongs together, with its members folded; then fail findings, one by one."""
    fails = [f for f in diff.all_findings() if f.severity is Severity.FAIL]
    fails += [f for f in diff.findings if f.severity is Severity.WARN]
    groups = [
        g for g in diff.groups if g.severity is not Severity.INFO and (len(g.paths) > 1 or g.severity is Severity.WARN)
    ]
    names = labels(diff.changes, diff.root)
    found = []
    if groups:
        lines = []
        for group in groups[:_SHOWN]:
            head = f"**{group.severity.value}** {prose(group.title)}{span(group.low, group.high, ', by ')}"
            members = [code(name) for name in group.names(names)]
            lines.append(_folding(head, members, folded) if len(members) > 1 else f"- {head}")
        if len(groups) > _SHOWN:
            lines.append(f"- … and {count(len(groups) - _SHOWN, 'group')} more")
        found.append(Section("## Groups, one likely cause each", "\n".join(lines)))
    if fails:
        lines = []
        for f in fails[:_SHOWN]:
            where = f" {code(short_path(f.path, diff.root))}:" if f.path else ""
            lines.append(f"- **{f.kind}**{where} {prose(f.message, _MESSAGE)}")
        if len(fails) > _SHOWN:
            lines.append(f"- … and {len(fails) - _SHOWN:,} more `fail` findings")
        found.append(Section(f"## {count(len(fails), 'finding')} to resolve", "\n".join(lines)))
    if past := [f"{'- ' if n else ''}{prose(line)}" for n, line in enumerate(diff.history_lines())]:
        found.append(Section("## Against earlier refreshes", "\n".join([past[0], "", *past[1:]]).rstrip()))
    return found


def _folding(head: str, items: Sequence[str], most: int, *, sentences: bool = False) -> str:
    """A line of a list with its items, names or sentences; more than a few are folded, and no more than `most` shown."""
    between = "\n  - " if sentences else ", "
    shown = f"{between if sentences else ' '}{few(items, most, between)}"
    if len(items) <= (_NAMED if sentences else _NAMED // 2):
        return f"- {head}:{shown}"
    return f"- {head}:\n  <details><summary>all {len(items):,}</summary>\n\n  {shown.lstrip()}\n\n  </details>"


def gravest_rows(diff: Diff, top: int) -> Section | None:
    """The rows that differ, by verdict, then by how far beyond the threshold."""
    shown, total = top_rows(diff, top)
    if not shown:
        return None
    header = ("file", "metric", "verdict", "n", "change", "mean |·|", "max |·|", "at step", "× limit")
    names = {change.path: code(short_path(change.path, diff.root)) for change, _, _ in shown}
    rows = ((names[c.path], code(name), row.verdict.value, *row_cells(row, name)) for c, row, name in shown)
    note = "change: mean of (new − old) / |old|. × limit: how far beyond the threshold of its verdict."
    return Section(f"## Worst {len(shown)} of {count(total, 'row')}", f"{table(header, rows)}\n\n{note}")


def gravest_tensors(diff: Diff, top: int) -> Section | None:
    """The tensors that moved, gravest first."""
    ranked = ranked_tensors(diff)
    if not ranked[:top]:
        return None
    rows = (
        (code(short_path(c.path, diff.root)), code(m.metric), m.verdict.value, code(type_text(t)), *cells(t.numbers))
        for c, m, t in ranked[:top]
    )
    title = f"## Tensors that moved, {len(ranked[:top])} of {len(ranked)}"
    return Section(title, table(("file", "tensor", "verdict", "of", *TITLES), rows))


def sections(diff: Diff, record: RefreshRecord | None = None, folded: int = _FOLDED) -> list[Section]:
    """The whole text, in order; `folded` is how many names a folded list may have."""
    rows = list(csv_rows(diff))
    found = [answer(diff), Section("## Summary", _what_was_done(diff, record, folded)), *must_look(diff, folded)]
    if rows:
        found.append(Section("## Relative-difference summary", _coverage(diff, rows)))
        found.append(Section("### Per-metric headline numbers (over `|avg_rel_diff|`)", _headlines(rows)))
        sizes = [magnitude(row.avg_rel_diff) for _, row in rows]
        buckets = ((f"`{label}`", str(sum(map(inside, sizes)))) for label, inside in _BUCKETS)
        title = f"### Distribution of `|avg_rel_diff|` across all {len(rows):,} rows"
        found.append(Section(title, table(("|avg_rel_diff| bucket", "count"), buckets)))
        if said := [f"- {line}" for line in _interpretation(diff)]:
            found.append(Section("### Interpretation", "\n".join(said)))
    return found


def pull_request_text(diff: Diff, record: RefreshRecord | None = None, *, github: bool = False) -> str:
    """The text as Markdown; for GitHub, cut at a section so that it fits a comment."""
    parts = sections(diff, record, _FOLDED_IN_A_COMMENT if github else _FOLDED)
    return fit(parts, GITHUB_COMMENT) if github else "\n".join(part.text() for part in parts)


def _what_was_done(diff: Diff, record: RefreshRecord | None, folded: int) -> str:
    lock = {path: new for path, (_, new) in diff.provenance.items() if new}
    done = f"Comparison of golden values: {code(diff.old)} → {code(diff.new)}."
    if record is not None:
        what = "Refresh of golden values"
        if record.scope == "only-failing":
            what += " for failing functional tests"
        elif record.scope == "all" and not record.narrowed:
            what = "Full refresh of golden values"
        done = f"{what} from {place(record.source, record.run_id, code)}."
    lines = [done, "", "**Golden value updates**", ""]
    if record is not None and record.command:
        lines.append(f"- Re-ran {code(record.command)}.")
    where = f" under {code(diff.root + '/')}" if diff.root else ""
    lines.append(f"- Updated **{count(len(_changed(diff)), 'golden-value file')}**{where}.")
    lines += provenance_lines(diff)
    still = [c for c in diff.changes if not _is_moved(c)]
    unreadable = [c for c in diff.changes if c.verdict is Verdict.UNREADABLE]
    new = [c for c in still if not c.has_baseline and c.verdict is not Verdict.UNREADABLE]
    for what, chosen in (
        ("moved, with the same bytes", [c for c in diff.changes if _is_moved(c)]),
        ("new, without a baseline to compare with", new),
        ("removed", [c for c in still if c.verdict is Verdict.REMOVED]),
        ("unreadable on one side, not compared", unreadable),
    ):
        if chosen:
            names = _names(sorted(c.path for c in chosen), diff.root)
            lines.append(_folding(f"{len(chosen):,} {what}", names, folded))
    if record is not None and record.date is not None:  # one that karat made, not the command line
        lines += origin_lines(diff, record, lock, folded)
    lines += overruled_lines(diff, record, lock, folded)
    if record is not None and record.not_refreshed:
        said = [prose(line) for line in record.not_refreshed]
        lines.append(_folding(f"Asked for and not refreshed ({len(said)})", said, folded, sentences=True))
    return "\n".join(lines)


def provenance_lines(diff: Diff) -> Iterator[str]:
    """From which runs the values of either side came, where the locks say so."""
    for side, word in enumerate(("Before", "Now")):
        if said := list(runs(diff, side, code)):
            yield f"- {word}: {few(said, _NAMED, '; ')}."


def _is_moved(change: Change) -> bool:
    return any(f.kind == "moved-golden" for f in change.findings)


def _coverage(diff: Diff, rows: Sequence[Row]) -> str:
    files = len({change.path for change, _ in rows})
    metrics = len({row.metric for _, row in rows})
    series = (change for change in diff.changes if change.has_baseline and change.shape == "series")
    without = sum(not row.in_csv for change in series for row in change.metrics)
    covers = f"Comparison covers **{count(files, 'file')} and {count(metrics, 'metric')}: {len(rows):,} `(file, metric)` pairs**"
    if files * metrics == len(rows):
        covers = f"Comparison covers **{count(files, 'file')} × {count(metrics, 'metric')} = {len(rows):,} `(file, metric)` pairs**"
    text = f"{covers}. Per row: `avg_rel_diff = mean((old − new) / old)` over shared steps, as in the CSV."
    if without:
        text += f" {count(without, 'more metric')} without a usable step, or single values, are not among them."
    others = [c for c in diff.changes if c.has_baseline and c.shape in {"table", "document"}]
    if others:
        text += f" {count(len(others), 'other golden')} (tables, documents) compared by row and structure."
    return text


def _headlines(rows: Sequence[Row]) -> str:
    sizes: dict[str, list[float]] = defaultdict(list)
    for _, row in sorted(rows, key=_size):
        sizes[row.metric].append(magnitude(row.avg_rel_diff))
    # The seed's median: the upper of the two middle values for an even count.
    lines = (
        (code(metric), str(len(values)), number(values[len(values) // 2]), number(values[-1]))
        for metric, values in sorted(sizes.items())
    )
    return table(("metric", "n", "median |avg_rel_diff|", "max |avg_rel_diff|"), lines)


def _interpretation(diff: Diff) -> Iterator[str]:
    by_metric: dict[str, list[Row]] = defaultdict(list)
    # Every row, not only the CSV's: a metric that is gone has no number, and must not look quiet.
    for change in diff.changes:
        if change.has_baseline and change.shape == "series":
            for row in change.metrics:
                by_metric[row.metric].append((change, row))
    root = diff.root
    for metric in sorted(by_metric):
        if metric.endswith("loss"):
            yield from _loss(metric, by_metric[metric], root)
    memory = [row for metric in by_metric if metric.startswith("mem-") for row in by_metric[metric]]
    if memory:
        yield _memory(memory, root)
    if "iteration-time" in by_metric:
        yield _timing(by_metric["iteration-time"])
    if "num-zeros" in by_metric:
        yield from _num_zeros(by_metric["num-zeros"], known=bool(diff.history))


def _size(row: Row) -> float:
    return magnitude(row[1].avg_rel_diff)


def _quiet(rows: Sequence[Row]) -> bool:
    return all(row.verdict in {Verdict.SAME, Verdict.NOISE} for _, row in rows)


def _loss(metric: str, rows: Sequence[Row], root: str) -> Iterator[str]:
    ranked = sorted(rows, key=_size)
    numbers = f"{code(metric)} max `|avg_rel_diff|` {number(_size(ranked[-1]))} / median {number(_size(ranked[len(ranked) // 2]))}"
    # The verdicts also know mean |·|, max |·| and completeness; the signed mean alone claims nothing.
    if _quiet(rows):
        yield f"{numbers} — loss trajectories match the old goldens to numerical noise (sub-1e-4 is within run-to-run variance)."
        return
    largest_first = [(c.path, row.verdict) for c, row in reversed(ranked)]
    cut = [path for path, verdict in largest_first if verdict is Verdict.INCOMPLETE]
    moved = [path for path, verdict in largest_first if verdict in {Verdict.DRIFT, Verdict.BREAK}]
    parts = []
    if moved:
        parts.append(f"moved in {count(len(moved), 'file')}: {few(_names(moved, root), _EXAMPLES)}")
    if cut:
        parts.append(f"incomplete, so not judged, in {count(len(cut), 'file')}: {few(_names(cut, root), _EXAMPLES)}")
    yield f"{numbers} — {'; '.join(parts)}."


def _memory(rows: Sequence[Row], root: str) -> str:
    judged, cut = _complete(rows)
    ranked = sorted(judged, key=_size, reverse=True)
    still = sum(row[1].verdict is Verdict.SAME or _size(row) < 1e-6 for row in judged if _quiet([row]))
    loud = [row for row in ranked if _size(row) >= 1e-3 or row[1].verdict is Verdict.BREAK]
    text = f"`mem-*`: {still} of {len(judged)} rows sit at `== 0` or `(0, 1e-6)`"
    if loud:
        names = [f"{code(short_path(c.path, root))} {code(row.metric)} ({number(_size((c, row)))})" for c, row in loud]
        return f"{text}; {len(loud)} land above `[1e-4, 1e-3)` or break: {few(names, _EXAMPLES)}{cut}."
    return f"{text}; none lands above `[1e-4, 1e-3)`{cut}."


def _complete(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """The rows whose runs are complete, and the words for those that are not."""
    judged = [row for row in rows if row[1].verdict is not Verdict.INCOMPLETE]
    cut = len(rows) - len(judged)
    return judged, f" ({count(cut, 'incomplete row')} not counted)" if cut else ""


def _timing(rows: Sequence[Row]) -> str:
    judged, cut = _complete(rows)
    steady = [row.steady_rel_diff for _, row in judged if row.steady_rel_diff is not None]
    slower = sum(value <= -0.05 for value in steady)
    faster = sum(value >= 0.05 for value in steady)
    if not slower and not faster:
        return f"`iteration-time`: medians after warm-up are within 5% in {len(steady)} of {len(rows)} files{cut}; the rest is warm-up and scheduler noise, not slower or faster."
    return f"`iteration-time`: the median after warm-up is at least 5% longer in {count(slower, 'file')} and at least 5% shorter in {count(faster, 'file')} of {len(rows)}{cut}; not a correctness problem of its own."


def _num_zeros(rows: Sequence[Row], *, known: bool) -> Iterator[str]:
    loud = [row for row in rows if _size(row) >= 1e-3]
    if not loud:
        if _quiet(rows):
            yield "`num-zeros` rows are all noise."
        return
    clusters: Counter[str] = Counter()
    for change, _ in loud:
        model, platform = change.identity.get("model"), change.identity.get("platform")
        folders = change.path.split("/")
        name = "/".join([*folders[-3:-2], "*"]) if len(folders) > 2 else change.path
        if model:
            name = f"{model}/* on {platform}" if platform else f"{model}/*"
        clusters[name] += 1
    ranked = sorted(clusters.items(), key=lambda item: (-item[1], item[0]))
    names = ", ".join(f"{code(name)} ({n})" for name, n in ranked[:_NAMED])
    past = "" if known else "; whether that is within historical variance, two sides do not say, but `--history` does"
    yield f"`num-zeros` shifts of at least 1e-3 in {count(len(loud), 'file')}, clustered on {names}{past}."


def current(diff: Diff, record: RefreshRecord | None) -> RefreshRecord | None:
    """The record, unless all that its refresh wrote has been committed or put back since."""
    if record is None or not record.files or set(record.files) & set(_changed(diff)):
        return record
    return None


def origin_lines(diff: Diff, record: RefreshRecord, lines: Mapping[str, LockEntry], folded: int) -> Iterator[str]:
    """What did not come from the last refresh: from which run it is, or that no run is known."""
    runs: dict[str, list[str]] = {}
    for path in _changed(diff):
        if path in lines and path not in {*record.files, *record.confirmed}:
            runs.setdefault(place(lines[path].source, lines[path].run, code), []).append(path)
    for run, paths in sorted(runs.items()):
        head = f"{len(paths):,} of them not by this command, but from {run}"
        yield _folding(head, _names(paths, diff.root), folded)
    edited = [p for p in _changed(diff) if p not in lines]
    if edited:
        yield _folding(
            f"{len(edited):,} of them without provenance, or edited since", _names(edited, diff.root), folded
        )


def overruled_lines(
    diff: Diff, record: RefreshRecord | None, lines: Mapping[str, LockEntry], folded: int
) -> Iterator[str]:
    """What somebody took although karat objects, with the reason where one was given."""
    changed = {c.path for c in diff.changes if not c.same_bytes}
    reasons = {path: lines[path].accepted for path in changed if path in lines}
    # What was put back since is no longer accepted.
    reasons |= {path: reasons.get(path) or BY_OPTION for path in (record.accepted if record else ()) if path in changed}
    if said := sorted((path, reason) for path, reason in reasons.items() if reason):
        why = [f"{code(short_path(path, diff.root))}: {prose(reason)}" for path, reason in said]
        yield _folding(f"Accepted despite fail findings ({len(said)})", why, folded, sentences=True)


def _changed(diff: Diff) -> list[str]:
    """The goldens that differ and are there."""
    present = (c for c in diff.changes if c.verdict is not Verdict.REMOVED and not c.same_bytes)
    return sorted(change.path for change in present)


def _names(paths: Iterable[str], root: str) -> list[str]:
    return [code(short_path(path, root)) for path in paths]
