"""Mirrors of git repositories, and their history.

One bare clone of each repository is shared by all hunts of a work folder. Work areas borrow its objects, so nothing is ever
collected: what a branch had before it was rewritten can still be put under test. It is fetched where a hunt begins; the finer
stages of a process see the same. Each question takes one git process, however many commits it is about.

Dates of commits lie: clocks are wrong, rebases keep old dates. The order on the branch does not. So the dates that are
believed are the longest part of them that does not go backwards along the branch, and a commit whose date is not believed
has that of the believed one before it (of the first believed one, where none is before).

The line from one commit to another is the first-parent line where the newer descends from the older (or, with `all`, every
commit between). Where it does not (a branch was rewritten, cut or set back), the line goes back to what both have in common,
and forward from there; each step then removes a commit, or adds one.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from karat.findings import CannotVerify, UsageError, suggest
from karat.hunts.model import Suspect
from karat.hunts.settings import EDIT, RepositorySettings, mistake
from karat.hunts.timelines.timeline import Workspace
from karat.report.words import printable
from karat.system import git
from karat.system.command import Command
from karat.system.hashes import sha256_hex
from karat.system.locks import holding

# Nothing in a commit can hold a zero byte, so nothing can pass for another field.
_FORM = "%m%x00%H%x00%ct%x00%an%x00%s"
_LAST_SECOND = 253_402_300_799  # Of the year 9999.


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """One commit, and when it became part of its branch: seconds since 1970, never less than the one before."""

    id: str
    time: int


def ordered_dates(dates: Sequence[int]) -> list[int]:
    """The dates put in order: never backwards, with as few as possible changed."""
    # Patience sorting finds a longest part that does not go backwards.
    tails: list[int] = []  # The smallest date that ends a part of each length,
    ends: list[int] = []  # and where it stands.
    before: list[int] = []
    for index, date in enumerate(dates):
        place = bisect_right(tails, date)
        before.append(ends[place - 1] if place else -1)
        if place == len(tails):
            tails.append(date)
            ends.append(index)
        else:
            tails[place], ends[place] = date, index
    found = list(dates)
    # From the last that is believed to the one before it: what lies between has the date of the latter.
    index, later = (ends[-1] if ends else -1), len(dates)
    while index >= 0:
        found[index:later] = [dates[index]] * (later - index)
        index, later = before[index], index
    found[:later] = found[later : later + 1] * later
    return found


CommitLine = tuple[Sequence[Commit], list[str]]
"""The commits after the old one, up to the new one (none where both are the same); and sentences: what is odd about it."""


def _in_order(commits: Sequence[Commit]) -> list[Commit]:
    times = ordered_dates([commit.time for commit in commits])
    return [Commit(c.id, time) for c, time in zip(commits, times, strict=True)]


def parse_commits(lines: Iterable[str]) -> list[Commit]:
    """Commits of `TIME ID` lines, oldest first."""
    return _in_order([Commit(commit, int(time)) for time, commit in (line.split() for line in lines if line)])


def index_at(commits: Sequence[Commit], time: float) -> int:
    """Index of the last commit that was part of the branch at that time; −1 before the first."""
    return bisect_right(commits, time, key=lambda commit: commit.time) - 1


def instants(start: float, end: float, step: float) -> list[float]:
    count = int((end - start) // step) + 1
    found = [start + i * step for i in range(count)]
    return found if found[-1] == end else [*found, end]


def interleave(lines: Mapping[str, Sequence[Commit]]) -> list[tuple[str, Commit]]:
    """The moves of several repositories by time: which one moves, and to which commit.

    Each keeps its own order; at the same moment the one that is named first moves first.
    """
    moves = (
        [(commit.time, place, index, name, commit) for index, commit in enumerate(line)]
        for place, (name, line) in enumerate(lines.items())
    )
    return [(name, commit) for _, _, _, name, commit in heapq.merge(*moves)]


def from_timestamp(seconds: float) -> datetime:
    """Seconds since 1970 as a time with its zone; what a commit claims beyond the calendar is its last second."""
    return datetime.fromtimestamp(min(seconds, _LAST_SECOND), tz=UTC)


_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[A-Za-z0-9.-]+\.[A-Za-z0-9-]+):(?!//)(?P<path>\S+)")
# Which part of a host's name tells what it runs → the ways to a commit, and to all between two, from the repository's page.
_FORGES = (
    (r"github|codeberg|gitea|forgejo", "/commit/{new}", "/compare/{old}...{new}"),
    (r"gitlab", "/-/commit/{new}", "/-/compare/{old}...{new}"),
    (r"bitbucket\.org", "/commits/{new}", "/branches/compare/{new}..{old}"),
    (r"googlesource\.com", "/+/{new}", "/+log/{old}..{new}"),
)


def commit_link(url: str, commit: str, *, since: str = "") -> str:
    """The page of a commit, or of all `since` another; empty where nobody knows it."""
    # Without user, password and port: what is private to the clone stays out of reports.
    if scp := _SCP.fullmatch(url):
        host, path = scp["host"].lower(), scp["path"]
    else:
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return ""
        if parts.scheme not in {"http", "https", "ssh", "git", "git+ssh"}:
            return ""
    path = path.strip("/").removesuffix(".git").strip("/")
    way = next((ways[bool(since)] for words, *ways in _FORGES if re.search(words, host)), "")
    return f"https://{host}/{quote(path)}{way.format(old=since, new=commit)}" if way and path else ""


# What seldom makes anything slower or wrong, and what brings in the work of others.
_QUIET = re.compile(
    r"(^|/)(docs?|tests?|\.github|examples?)/|\.(md|rst|txt)$|(^|/)(test_|LICENSE|CHANGELOG)|_test\.\w+$"
)
_DEPENDENCIES = re.compile(
    r"(^|/)(third_party/|requirements[^/]*$|WORKSPACE|(pyproject|Cargo)\.toml$|setup\.(py|cfg)$|\.gitmodules$)"
    r"|\.(lock|bzl|bazel)$|(^|/)(go\.(mod|sum)|package(-lock)?\.json|CMakeLists\.txt)$"
)


def likelihood(files: Sequence[str]) -> float:
    """How likely a commit that touches these files is to have changed anything, compared with others; never nothing."""
    code = [file for file in files if _DEPENDENCIES.search(file) or not _QUIET.search(file)]
    if not code:
        return 0.25
    return min((1 + math.log2(1 + len(code))) / 2, 2) * (2 if any(map(_DEPENDENCIES.search, code)) else 1)


# A password, or what forges take for one in a user's place or behind the path.
_SECRET = re.compile(
    r"[a-z+]+://(?:[^/@]*:[^/@]+@|(?:gh[a-z]_|github_pat_|gl[a-z]+-)[^/@]+@|[^/@]{30,}@"
    r"|[^?]*\?.*(?:token|secret|password|key)=)",
    re.IGNORECASE,
)
_KEPT = (
    "+refs/heads/*:refs/heads/*",
    "+refs/tags/*:refs/tags/*",
    # Of a clone on this disk: the branches it has seen, which its own may be behind of.
    "+refs/remotes/origin/*:refs/remotes/origin/*",
)


# Path and branch → its last commit: pushes between two stages of a hunt do not concern it.
_SEEN: dict[tuple[str, str], str] = {}


class Mirror:
    """One repository's history, on this disk."""

    def __init__(self, settings: RepositorySettings, place: Workspace) -> None:
        self.settings, self.name = settings, settings.name
        self.url = clone_url(settings, place.root)
        self.shown_url = git.hushed(self.url)  # Fit for a report.
        plain = re.sub(r"[^A-Za-z0-9]+", "-", settings.name).strip("-")
        if plain != settings.name:  # two names that look alike stay two
            plain = f"{plain}-{sha256_hex(settings.name.encode())[:8]}"
        self.path = place.work.absolute() / "mirrors" / f"{plain}-{sha256_hex(self.url.encode())[:12]}.git"
        self.stale = ""  # Why it could not be fetched, where an earlier state serves.

    def open(self, *, fresh: bool) -> str:
        """The branch's last commit; unless a fresh one is wanted, as this process saw it first."""
        known = (str(self.path), self.settings.branch)
        with self._locked() as held:
            if fresh or known not in _SEEN:
                try:
                    self._fetch_all(held)
                except CannotVerify as error:
                    # A hunt that is resumed on the train has all it needs.
                    if self._resolve(self.settings.branch) is None:
                        raise
                    self.stale = str(error)
                found = self._resolve(self.settings.branch)
                if found is None:
                    refs = ("--format=%(refname:lstrip=2)", "refs/heads", "refs/tags")
                    names = git.local(self.path, "for-each-ref", *refs).decode("utf-8", "replace").split()
                    more = ", …" if len(names) > 8 else ""
                    shown = f" (there are {', '.join(names[:8])}{more})" if names else ""
                    wanted = f"a branch or tag {self.settings.branch!r} in {self.shown_url}"
                    said = f"expected {wanted}, found none{suggest(self.settings.branch, names)}{shown}"
                    raise mistake(f"repository {self.name}: {said}")
                _SEEN[known] = found
        return _SEEN[known]

    def commit(self, revision: str) -> str:
        """The commit that a revision names: an id, a tag, a branch; fetched by its id where it is not here."""
        found = self._resolve(revision)
        if found is None and git.is_commit_id(revision):
            # No branch has it (any more): some servers hand a commit out all the same.
            with self._locked() as held, suppress(CannotVerify):
                try:
                    self._fetch(held, f"{revision}:refs/karat/kept/{revision}")
                except CannotVerify:
                    self._fetch_all(held)
            found = self._resolve(revision)
        if found is None:
            said = f"repository {self.name}: expected the commit {revision!r} in {self.shown_url}, which has no such commit"
            raise CannotVerify(said, next_command=EDIT)
        return found

    def listed(self, *words: str) -> list[Commit]:
        """Commits that `git rev-list` lists, parents first, with dates in order."""
        # Without --topo-order git believes dates: what is excluded would be listed after a few that are wrong.
        flags = ("--timestamp", "--topo-order", "--reverse")
        out = git.local(self.path, "rev-list", *flags, *words, "--")
        return parse_commits(out.decode().splitlines())

    def about(self, commits: Iterable[str]) -> dict[str, tuple[str, float]]:
        """Commit → the first line of its message, and how likely it is to have changed anything."""
        words = ("log", "--no-walk=unsorted", "--name-only", "--diff-merges=first-parent", "--format=%x00%H %s")
        out = git.local(self.path, *words, "--stdin", given="".join(f"{commit}\n" for commit in commits).encode())
        found = {}
        for text in out.decode("utf-8", "replace").split("\0")[1:]:
            first, *files = filter(None, text.split("\n"))
            commit, _, title = first.partition(" ")
            found[commit] = printable(title), likelihood(files)
        return found

    def parents(self, commit: str) -> list[str]:
        """First parent first; none of a root commit."""
        return git.local(self.path, "rev-list", "--parents", "--no-walk", commit, "--").decode().split()[1:]

    @property
    def shallow_at(self) -> str:
        """Where the history is cut off; empty: it is whole."""
        try:
            return (self.path / "shallow").read_text(encoding="ascii").split()[0]
        except (OSError, IndexError):
            return ""

    def line(self, old: str, new: str, *, every: bool = False) -> CommitLine:
        if old == new:
            return [], []
        found = git.answer(self.path, "merge-base", old, new)
        before, after = old[:12], new[:12]
        if not found:
            cut = self.shallow_at
            why = f" (the history is cut off at {cut[:12]}: a shallow clone)" if cut else ""
            said = f"{before} and {after} have no history in common{why}; there are no commits between them"
            return self._with_end([], new), [f"{self.name}: {said}"]
        base = found.split()[0]
        if base == old:
            return self._forward(old, new, every=every)
        back = [*reversed(self.listed("--first-parent", old, f"^{base}")[:-1])]
        forward, more = ([], []) if base == new else self._forward(base, new, every=every)
        note = f"{self.name}: {after} does not descend from {before} (it is older, or of a rewritten or another branch)"
        way = f"goes back to {base[:12]}, which both have, a commit less with each step, and forward from there"
        return _in_order([*back, *self.listed("--no-walk", base), *forward]), [f"{note}; the line {way}", *more]

    def _forward(self, old: str, new: str, *, every: bool) -> CommitLine:
        words = ("--topo-order", "--ancestry-path") if every else ("--first-parent",)
        commits = self.listed(*words, new, f"^{old}")
        notes = []
        if every:
            if self.listed("--merges", "--ancestry-path", new, f"^{old}"):
                why = "parallel branches lack each other's commits, so a change may show as a dip"
                way = 'history = "first-parent" looks into merges one by one'
                said = f"the commits from {old[:12]} to {new[:12]} are not one line; {why} ({way})"
                notes.append(f"{self.name}: {said}")
        elif old not in self.parents(commits[0].id)[:1]:
            # Those of the line that lack the old one would be steps back.
            on_the_way = {c.id for c in self.listed("--ancestry-path", new, f"^{old}")}
            commits = self._with_end([commit for commit in commits if commit.id in on_the_way], new)
            said = f"{self.name}: {old[:12]} is not on the first-parent line of {new[:12]}"
            notes.append(f"{said}; the step from it to {commits[0].id[:12]} is more than one commit")
        return self._with_end(commits, new), notes

    def _with_end(self, commits: Sequence[Commit], new: str) -> list[Commit]:
        """The line with its end, also where a listing leaves it out."""
        if not commits or commits[-1].id != new:
            commits = [*(c for c in commits if c.id != new), *self.listed("--no-walk", new)]
        return _in_order(commits)

    def merged_branches(self, old: str, new: str) -> list[tuple[str, Sequence[Commit]]]:
        """What a merge of `old` brought: of each branch the commit that it left from, and its own commits.

        Which of them was checked out when they were merged says nothing of what came new (`git pull` makes it the wrong
        way round).
        """
        parents = self.parents(new)
        found: list[tuple[str, Sequence[Commit]]] = []
        for side in parents if old in parents else ():
            if commits := self.listed("--first-parent", side, f"^{old}"):
                base = next(iter(self.parents(commits[0].id)), None)
                # An unrelated history was merged: before its first commit there is nothing to run.
                found.append((base, commits) if base else (commits[0].id, commits[1:]))
        return found

    def suspects(self, old: str, new: str) -> Iterator[Suspect]:
        """Every commit between two, oldest first.

        Those that were removed count as much as those that were added: a branch may have been set back.
        """
        words = ("-z", "--topo-order", "--reverse", "--left-right", f"--format={_FORM}")
        out = git.local(self.path, "log", *words, f"{old}...{new}", "--")
        fields = out.decode("utf-8", "replace").split("\0")
        # Links of a clone on this disk are made of where that was cloned from.
        folders = (Path(self.url) / ".git", Path(self.url)) if Path(self.url).is_dir() else ()
        origins = (git.answer(folder, "config", "--get", "remote.origin.url") for folder in folders)
        page = next(filter(None, origins), self.url)
        for start in range(0, len(fields) - 1, 5):
            side, commit, time, author, title = fields[start : start + 5]
            yield Suspect(
                part=self.name,
                id=commit,
                title=f"{'removed: ' if side == '<' else ''}{printable(title)}",
                author=printable(author),
                when=from_timestamp(int(time or 0)),
                link=commit_link(page, commit),
                compare=commit_link(page, new, since=old),
            )

    def _resolve(self, revision: str) -> str | None:
        names = [revision]
        if not git.is_commit_id(revision):
            own = revision.removeprefix("refs/heads/")
            names = [f"refs/heads/{own}", f"refs/tags/{own}", own]
            if own.startswith("origin/"):
                theirs = (f"refs/remotes/{own}", own.removeprefix("origin/"))
                names[:0] = [f"{at}{name}" for name in theirs for at in ("refs/heads/", "refs/tags/", "")]
        flags = ("--verify", "--quiet", "--end-of-options")
        for name in names:
            # Only names and ids: what begins with a dash or has git's operators in it is looked up nowhere.
            if not name.startswith(("-", ":")):
                found = git.answer(self.path, "rev-parse", *flags, f"{name}^{{commit}}")
                if found and git.is_commit_id(found):
                    return found
        return None

    def _fetch_all(self, held: int) -> None:
        try:
            self._fetch(held, *_KEPT)
        except CannotVerify as error:
            if "cannot lock ref" not in str(error):
                raise
            # A branch `x` is gone, and now there is one `x/y`. Otherwise what is gone stays: a hunt may be about it.
            self._fetch(held, *_KEPT, flags=("--prune",))

    def _fetch(self, held: int, *wanted: str, flags: tuple[str, ...] = ()) -> None:
        flags += ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--update-shallow")
        try:
            git.remote(self.path, "fetch", *flags, "--", self.url, *wanted, held=held)
        except CannotVerify as error:
            following = Command("git", "ls-remote", self.shown_url)
            raise CannotVerify(f"repository {self.name}: {error}", next_command=following) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """One at a time, over all processes; git inherits the lock, so that one outlived by its git still has it."""
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                held = stack.enter_context(holding(self.path.with_suffix(".lock")))
            except OSError as error:
                said = f"cannot keep a clone of {self.name} in {self.path.parent}: {error.strerror}"
                following = "edit hunt.toml: work = a folder that can be written"
                raise CannotVerify(said, next_command=following) from error
            # What a killed git left: its locks. Whoever holds ours is the only one.
            for left in self.path.glob("**/*.lock"):
                left.unlink(missing_ok=True)
            if not (self.path / "HEAD").is_file() or not (self.path / "config").is_file():
                git.local(self.path, "init", "--quiet", "--bare", "--template=", "--object-format=sha1")
            yield held


def clone_url(settings: RepositorySettings, root: Path) -> str:
    """What git clones: a path is relative to hunt.toml's folder; a password in a URL is refused."""
    url = settings.url
    if not url or url.startswith("-"):
        raise mistake(f"repository {settings.name}: expected a URL or a path, found {url!r}")
    if _SECRET.match(url):
        said = "expected a URL without a password, which others could see on the command line"
        raise UsageError(f"repository {settings.name}: {said}", next_command="git credential-store --help")
    if "://" in url or re.match(r"[^/]+:", url):
        return url.removeprefix("file://") if url.startswith("file:///") else url
    return str((root / Path(url).expanduser()).resolve())
