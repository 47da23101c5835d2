"""Mirrors: one bare clone of each repository, shared by all hunts of a work folder, and asked for its history.

In: a repository's settings and the place. Out: a `Mirror` that answers in one git process per question, however many
commits it is about. Work areas borrow its objects, so nothing is ever collected here: what a branch had before it was
rewritten can still be put under test. It is fetched where a hunt begins; the finer stages of a process see the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from karat.findings import CannotVerify, UsageError, suggest
from karat.hunt import git_program
from karat.hunt.history import Commit, parse
from karat.hunt.settings import RepositorySettings
from karat.hunt.timeline import Place

FOLDER = "mirrors"
_EDIT = "edit hunt.toml"
# A password, or what forges take for one in a user's place or behind the path.
_SECRET = re.compile(
    r"[a-z+]+://(?:[^/@]*:[^/@]+@|(?:gh[a-z]_|github_pat_|gl[a-z]+-)[^/@]+@|[^/@]{30,}@"
    r"|[^?]*\?.*(?:token|secret|password|key)=)",
    re.IGNORECASE,
)
# What git says of a server whose commits have another kind of id, and of branches that cannot be there together.
_OTHER_HASH = re.compile(r"mismatched algorithms: client \w+; server (sha\w+)")
_IN_THE_WAY = "cannot lock ref"
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

    def __init__(self, settings: RepositorySettings, place: Place) -> None:
        self.settings = settings
        self.url = clone_url(settings, place.root)
        self.path = place.work.absolute() / FOLDER / _folder(settings.name, self.url)
        self.stale = ""
        """Why it could not be fetched, where an earlier state serves."""

    @property
    def name(self) -> str:
        """The repository's, in hunt.toml."""
        return self.settings.name

    def open(self, *, fresh: bool) -> str:
        """The branch's last commit; unless a fresh one is wanted, as this process saw it first."""
        known = (str(self.path), self.settings.branch)
        with self._locked() as held:
            if fresh or known not in _SEEN:
                self._refresh(held)
                _SEEN[known] = self._branch()
        return _SEEN[known]

    def _refresh(self, held: int) -> None:
        try:
            self._fetch_all(held)
        except CannotVerify as error:
            # A hunt that is resumed on the train has all it needs.
            if self._named(self.settings.branch) is None:
                raise
            self.stale = str(error)

    def commit(self, revision: str) -> str:
        """The commit that a revision names: an id, a tag, a branch; fetched by its id where it is not here."""
        found = self._named(revision)
        if found is None and git_program.is_commit_id(revision):
            # No branch has it (any more): some servers hand a commit out all the same.
            with self._locked() as held, suppress(CannotVerify):
                try:
                    self._fetch(held, f"{revision}:refs/karat/kept/{revision}")
                except CannotVerify:
                    self._fetch_all(held)
            found = self._named(revision)
        if found is None:
            raise CannotVerify(
                f"repository {self.name}: expected the commit {revision!r} in {self.shown_url}, which has none by that name",
                next_command=_EDIT,
            )
        return found

    def line(self, tip: str) -> tuple[list[Commit], int]:
        """First parents of a commit, oldest first, and how many of their dates were not believed."""
        return self.listed("--first-parent", tip)

    def listed(self, *words: str) -> tuple[list[Commit], int]:
        """Commits that `git rev-list` lists, parents first, with dates in order."""
        # Without --topo-order git believes dates: what is excluded would be listed after a few that are wrong.
        flags = ("--timestamp", "--topo-order", "--reverse")
        out = git_program.local(self.path, "rev-list", *flags, *words, "--")
        return parse(out.decode().splitlines())

    def parents(self, commit: str) -> list[str]:
        """First parent first; none of a root commit."""
        out = git_program.local(self.path, "rev-list", "--parents", "--no-walk", commit, "--")
        return out.decode().split()[1:]

    def merge_base(self, one: str, other: str) -> str | None:
        """The commit that two have in common; None for unrelated histories."""
        found = git_program.answer(self.path, "merge-base", one, other)
        return found.split()[0] if found else None

    @property
    def shallow_at(self) -> str:
        """Where the history is cut off; empty: it is whole."""
        try:
            return (self.path / "shallow").read_text(encoding="ascii").split()[0]
        except (OSError, IndexError):
            return ""

    @property
    def shown_url(self) -> str:
        """Fit for a report."""
        return git_program.hushed(self.url)

    @property
    def page_url(self) -> str:
        """What links are made of: of a clone on this disk, where that was cloned from."""
        if not Path(self.url).is_dir():
            return self.url
        for folder in (Path(self.url) / ".git", Path(self.url)):
            found = git_program.answer(folder, "config", "--get", "remote.origin.url")
            if found:
                return found
        return self.url

    def _branch(self) -> str:
        found = self._named(self.settings.branch)
        if found is None:
            there = git_program.local(
                self.path, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/tags"
            )
            names = there.decode("utf-8", "replace").split()
            shown = (
                f" (there are {', '.join(names[:8])}{', …' if len(names) > 8 else ''})"
                if names
                else ""
            )
            raise UsageError(
                f"repository {self.name}: expected a branch or tag {self.settings.branch!r} in {self.shown_url}, "
                f"found none{suggest(self.settings.branch, names)}{shown}",
                next_command=_EDIT,
            )
        return found

    def _named(self, revision: str) -> str | None:
        if git_program.is_commit_id(revision):
            names = [revision]
        else:
            own = revision.removeprefix("refs/heads/")
            remote = (
                [f"refs/remotes/{own}", own.removeprefix("origin/")]
                if own.startswith("origin/")
                else []
            )
            names = [
                n
                for name in (*remote, own)
                for n in (f"refs/heads/{name}", f"refs/tags/{name}", name)
            ]
        for name in names:
            # Only names and ids: what begins with a dash or has git's operators in it is looked up nowhere.
            if not name.startswith("-") and not name.startswith(":"):
                verify = (
                    "rev-parse",
                    "--verify",
                    "--quiet",
                    "--end-of-options",
                    f"{name}^{{commit}}",
                )
                found = git_program.answer(self.path, *verify)
                if found and git_program.is_commit_id(found):
                    return found
        return None

    def _fetch_all(self, held: int) -> None:
        try:
            self._fetch(held, *_KEPT)
        except CannotVerify as error:
            hashed = _OTHER_HASH.search(str(error))
            if hashed and not any(self.path.glob("objects/pack/*.pack")):
                shutil.rmtree(self.path)
                self._make(f"--object-format={hashed[1]}")
                self._fetch(held, *_KEPT)
            elif _IN_THE_WAY in str(error):
                # A branch `x` is gone, and now there is one `x/y`. Otherwise what is gone stays: a hunt may be about it.
                self._fetch(held, *_KEPT, flags=("--prune",))
            else:
                raise

    def _fetch(self, held: int, *wanted: str, flags: tuple[str, ...] = ()) -> None:
        flags = (
            *flags,
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            "--update-shallow",
        )
        try:
            git_program.remote(self.path, "fetch", *flags, "--", self.url, *wanted, held=held)
        except CannotVerify as error:
            raise CannotVerify(
                f"repository {self.name}: {error}",
                next_command=f"git ls-remote {shlex.quote(self.shown_url)}",
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """One at a time, over all processes; git inherits the lock, so that one outlived by its git still has it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = os.open(
                self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise CannotVerify(
                f"expected to keep a clone of {self.name} in {self.path.parent}: {error.strerror}",
                next_command="edit hunt.toml: work = a folder that can be written",
            ) from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            self._heal()
            yield held
        finally:
            os.close(held)

    def _heal(self) -> None:
        """What a killed git left: its locks. Whoever holds ours is the only one."""
        for left in self.path.glob("**/*.lock"):
            left.unlink(missing_ok=True)
        if not (self.path / "HEAD").is_file() or not (self.path / "config").is_file():
            self._make()

    def _make(self, *flags: str) -> None:
        git_program.local(self.path, "init", "--quiet", "--bare", "--template=", *flags)


def clone_url(settings: RepositorySettings, root: Path) -> str:
    """What git clones: a path is seen from hunt.toml's folder; a password in a URL is refused."""
    url = settings.url
    if not url or url.startswith("-"):
        raise UsageError(
            f"repository {settings.name}: expected a URL or a path, found {url!r}",
            next_command=_EDIT,
        )
    if _SECRET.match(url):
        raise UsageError(
            f"repository {settings.name}: expected a URL without a password; others see it on the command line",
            next_command="git credential-store --help",
        )
    if "://" in url or re.match(r"[^/]+:", url):
        return url.removeprefix("file://") if url.startswith("file:///") else url
    return str((root / Path(url).expanduser()).resolve())


def _folder(name: str, url: str) -> str:
    return f"{_plain(name)}-{hashlib.sha256(url.encode()).hexdigest()[:12]}.git"


def _plain(text: str) -> str:
    """Fit for a file's and a reference's name; two texts that look alike stay two."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")
    same = plain == text
    return plain if same else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
