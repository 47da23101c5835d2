"""Git: what changed between two trees, and blobs in one batch.

git is run by name with argument lists; nothing here ever reaches a shell. Paths come and go as raw
bytes (`-z`), so that spaces, newlines and any encoding survive.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.system.command import Command
from karat.system.foreign.limits import Limit, TooLong, read_plain

REFETCH = "git fetch --refetch"
_LINK, _SUBMODULE = "120000", "160000"
_ASKED_AHEAD = 500
_ON_A_LINE = 200  # Paths on one command line.
# A clone's own configuration may name programs: to watch files, as hooks, to check signatures. Reading goldens is no reason
# to run them. What is left are the filters of `git add` and of a checkout, which make a file what it is (SECURITY.md).
_NO_PROGRAMS = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false",
    # Since git 2.54 a hook may also stand in the configuration.
    *(word for event in ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc")
      for word in ("-c", f"hook.{event}.enabled=false")),
)  # fmt: skip
# Nor is it a reason to fetch what a partial clone lacks: whom git would ask, and by which program, is the clone's choice, too.
_NO_FETCH = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
_GIT = ("git", *_NO_PROGRAMS)


class GitChange(msgspec.Struct, frozen=True):
    """One path that differs: its old and new blob (None: absent on that side)."""

    path: str
    old: str | None
    new: str | None
    new_in_worktree: bool = False
    special: str | None = None  # `symbolic link` or `submodule` where it is no plain file.


def no_object(oid: str) -> str:
    """What to say of an object that git names and does not have; `REFETCH` may help."""
    return f"git has no object {oid[:12]} for it (a partial clone, or a damaged repository)"


def _environment() -> dict[str, str]:
    # Read-only work must not take the index lock or translate messages that people will search for.
    return {**os.environ, **_NO_FETCH, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", "KARAT_NOTHING": ""}


def run_git(root: Path, *arguments: str, data: bytes | None = None) -> bytes:
    """The output of a git command, which is given `data`; its own words on failure."""
    stdin = subprocess.DEVNULL if data is None else subprocess.PIPE
    return finish_git(start_git(root, *arguments, stdin=stdin), data)


def about(root: Path, paths: Sequence[str] | None, *words: str) -> bytes:
    """The output of a command about paths, each taken literally, a command line's worth at a time; None: about all."""
    if paths is None:
        return run_git(root, *words)
    parts = [paths[i : i + _ON_A_LINE] for i in range(0, len(paths), _ON_A_LINE)]
    return b"".join(run_git(root, "--literal-pathspecs", *words, "--", *part) for part in parts)


def entries(out: bytes) -> Iterator[tuple[str, list[str]]]:
    """Each path of an `ls-tree` or `ls-files --stage`, with what stands before it."""
    for line in os.fsdecode(out).split("\0"):
        if line:
            meta, _, path = line.partition("\t")
            yield path, meta.split(" ")


def start_git(root: Path, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """A git command under way; `finish_git` has its output."""
    try:
        return subprocess.Popen(
            [*_GIT, "-C", str(root), *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
        )
    except FileNotFoundError as error:
        said = "git was expected on PATH and not found; karat reads the old side from it"
        raise CannotVerify(said, next_command="karat diff OLD_FOLDER NEW_FOLDER") from error


def finish_git(process: subprocess.Popen[bytes], data: bytes | None = None) -> bytes:
    """The output of a command that `start_git` started; its own words on failure."""
    output, complaint = process.communicate(data)
    if process.returncode:
        _, root, *words = map(str, process.args[len(_GIT) :])  # type: ignore[index]
        verb = next(word for word in words if not word.startswith("-"))
        said = complaint.decode("utf-8", "replace").strip()
        if "' not allowed" in said or "lazy fetching disabled" in said:
            said = (
                f"expected the object in {root}, found that it is not (a partial clone); karat fetches nothing: {said}"
            )
            raise CannotVerify(said, next_command=Command("git", "-C", root, "fetch", "--refetch"))
        raise CannotVerify(f"git {verb} failed in {root}: {said}", next_command=Command("git", "-C", root, "status"))
    return output


def find_root(start: Path) -> Path | None:
    """The top folder of the work tree that holds `start`, or None outside of one."""
    try:
        out = run_git(start, "rev-parse", "--show-toplevel")
    except CannotVerify as error:
        # Any other refusal (ownership, a broken .git) is git's to explain, not "no repository".
        if "not a git repository" in str(error) or "must be run in a work tree" in str(error):
            return None
        raise
    return _around(start, out)


def work_tree_around(path: Path) -> Path | None:
    """The same for a file or folder that need not be there; None also where git cannot be asked, for who needs it for little."""
    with suppress(CannotVerify):
        return find_root(next(folder for folder in (path, *path.resolve().parents) if folder.is_dir()))
    return None


def root_and_head(start: Path) -> tuple[Path, str]:
    """The top folder of the work tree and its HEAD commit, from one question; fails without either."""
    out = run_git(start, "rev-parse", "--show-toplevel", "--verify", "HEAD^{commit}")
    root, _, commit = out.rstrip(b"\n").rpartition(b"\n")
    return _around(start, root), commit.decode()


def _around(start: Path, said: bytes) -> Path:
    root = Path(os.fsdecode(said.removesuffix(b"\n")))
    if not start.resolve().is_relative_to(root.resolve()):
        text = (
            f"expected the work tree around {start}, found that git takes {root} for it (core.worktree, GIT_WORK_TREE)"
        )
        raise CannotVerify(text, next_command="git config --show-origin core.worktree")
    return root


def git_path(root: Path, name: str) -> Path:
    """Where git keeps private files of this work tree; never committed."""
    out = run_git(root, "rev-parse", "--git-path", name).rstrip(b"\n")
    return root / os.fsdecode(out)


def common_folder(root: Path) -> Path:
    """Where git keeps what all work trees of a repository share."""
    folder = root / ".git"
    if folder.is_dir() and not os.environ.keys() & {"GIT_DIR", "GIT_COMMON_DIR"}:
        return folder
    return root / os.fsdecode(run_git(root, "rev-parse", "--git-common-dir").rstrip(b"\n"))


def history_folder(root: Path) -> Path:
    """Where karat keeps what it learnt from a repository's history; there is none unless somebody asked for it."""
    return common_folder(root) / "karat" / "history"


def resolve(root: Path, revision: str) -> str | None:
    """The commit (or tree) a revision names, or None."""
    if revision.startswith("-"):
        return None
    # What follows a colon is a path, and a path may end in anything.
    ends = ("",) if ":" in revision else ("^{commit}", "^{tree}")
    for end in ends:
        try:
            out = run_git(root, "rev-parse", "--verify", "--quiet", f"{revision}{end}")
        except CannotVerify:
            continue
        found = out.decode().strip()
        if end or run_git(root, "cat-file", "-t", found).strip() == b"tree":
            return found
    return None


def work_tree_files(folder: Path) -> set[str]:
    """Every file below a folder that git knows or would add, seen from there."""
    out = run_git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return {os.fsdecode(raw) for raw in out.split(b"\0") if raw}


def origin(root: Path) -> tuple[str, str] | None:
    """The host of the remote origin, and what its URL names there: OWNER/NAME."""
    with suppress(CannotVerify, ValueError):  # `https://host/owner/name.git`, or `git@host:owner/name.git`
        url = os.fsdecode(run_git(root, "remote", "get-url", "origin")).strip()
        at, _, path = url.partition(":")
        host, path = (
            (urlsplit(url).hostname or "", urlsplit(url).path) if "://" in url else (at.rpartition("@")[2], path)
        )
        name = path.strip("/").removesuffix(".git")
        return (host, name) if "/" in name else None
    return None


def tree_paths(root: Path, revision: str) -> dict[str, str]:
    return _parse_tree(run_git(root, *_LS_TREE, revision))


_LS_TREE = ("ls-tree", "-r", "-z", "--full-tree")
_LS_OTHERS = ("ls-files", "-z", "--others", "--exclude-standard", "--full-name", ":/")
_RAW = ("--raw", "-z", "--no-renames", "--no-abbrev")


def _parse_tree(out: bytes) -> dict[str, str]:
    return {path: oid for path, (mode, _, oid) in entries(out) if mode not in {_LINK, _SUBMODULE}}


class TreeComparison:
    """What differs from a revision to another, or to the work tree; asked at once, answered later.

    Three questions run side by side, because each reads another part of the repository.
    """

    def __init__(self, root: Path, old: str, new: str | None) -> None:
        self._worktree = new is None
        if new is None:
            settings = start_git(root, "config", "--list", "--null", "--show-scope", "--name-only")
            self._tree, self._others = start_git(root, *_LS_TREE, old), start_git(root, *_LS_OTHERS)
            words = ("diff-index", *_RAW, "--ignore-submodules=dirty", old, "--")
            self._changed = start_git(root, *_no_filters(finish_git(settings)), *words)
        else:
            self._tree = start_git(root, *_LS_TREE, old)
            self._changed = start_git(root, "diff-tree", "-r", *_RAW, old, new, "--")

    def finish(self) -> tuple[list[GitChange], dict[str, str]]:
        """Every path that differs, and all files of the old revision with their blobs."""
        fields = finish_git(self._changed).split(b"\0")
        found = (_change(*pair, worktree=self._worktree) for pair in zip(fields[::2], fields[1::2], strict=False))
        changes = {change.path: change for change in found}
        if self._worktree:
            for raw in finish_git(self._others).split(b"\0"):
                if raw:
                    path = os.fsdecode(raw)
                    # A file that only left the index is deleted there and untracked here.
                    old = changes[path].old if path in changes else None
                    changes[path] = GitChange(path, old, None, new_in_worktree=True)
        return list(changes.values()), _parse_tree(finish_git(self._tree))


def _no_filters(settings: bytes) -> Iterator[str]:
    """Options by which git runs no filter that the clone's own configuration names, to see whether a file has changed.

    Those of the user's, as Git LFS installs itself, stay.
    """
    listed = settings.decode("utf-8", "replace")
    scopes, names = (listed.split("\0")[first::2] for first in (0, 1))
    found = {name for scope, name in zip(scopes, names, strict=False) if scope in {"local", "worktree"}}
    for name in sorted(name for name in found if name.startswith("filter.")):
        # By way of a variable, because a name may hold a "=".
        yield f"--config-env={name}=KARAT_NOTHING"
        yield f"--config-env={name.rpartition('.')[0]}.required=KARAT_NOTHING"


def _change(meta: bytes, path: bytes, *, worktree: bool = False) -> GitChange:
    old_mode, new_mode, old, new, status = meta.lstrip(b":").decode().split(" ")
    special = {_LINK: "symbolic link", _SUBMODULE: "submodule"}.get(new_mode)
    there = status[0] != "D"
    return GitChange(
        path=os.fsdecode(path),
        old=None if not old.strip("0") or old_mode in {_LINK, _SUBMODULE} else old,
        new=new if there and new.strip("0") else None,
        new_in_worktree=worktree and there,
        special=special,
    )


def history(root: Path, commits: str, *paths: str, follow: bool = False) -> Iterator[tuple[str, int, GitChange]]:
    """(commit, its time in seconds or 0, a path that it changed) along first parents, newest first.

    With `follow` there is one path, taken literally and followed through renames; else they are pathspecs.
    """
    words = ("--literal-pathspecs", "log", "--follow") if follow else ("log", "--no-renames")
    shown = ("--raw", "-z", "--no-abbrev", "--no-color", "--format=%x02%H %ct")
    out = run_git(root, *words, "--first-parent", *shown, "--end-of-options", commits, "--", *paths)
    commit, seconds = "", 0
    fields = iter(out.split(b"\0"))
    for field in fields:
        text = field.strip(b"\n")
        if text.startswith(b"\x02"):
            commit, _, when = text[1:].decode().partition(" ")
            # Whoever made the commit may have claimed anything.
            seconds = int(when) if re.fullmatch("[0-9]{1,11}", when) else 0
        elif text.startswith(b":"):
            name = next(fields, b"")
            if text.rpartition(b" ")[2][:1] in {b"R", b"C"}:
                name = next(fields, b"")
            yield commit, seconds, _change(text, name)


class Blobs:
    """One `git cat-file --batch` that answers for as many blobs as it is asked for."""

    def __init__(self, root: str | Path) -> None:
        self._root = root
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            # What is larger than a megabyte git sends as it unpacks it.
            [*_GIT, "-c", "core.bigFileThreshold=1m", "-C", str(self._root), "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            bufsize=1 << 18,
        )

    def _ask(self, oids: Sequence[str]) -> None:
        with suppress(OSError):  # git is gone; the answer will not come, and that is said there
            if self._process.stdin is not None:
                self._process.stdin.write("".join(f"{oid}\n" for oid in oids).encode())
                self._process.stdin.flush()

    def read(self, oids: Sequence[str], most: int | None = None) -> Iterator[bytes | int | None]:
        """The bytes of each blob, in order; their number, if they are more than `most`; None where git has no such blob."""
        # git answers while it is still being asked, so what is asked ahead must fit a pipe.
        for i in range(0, len(oids), _ASKED_AHEAD):
            part = oids[i : i + _ASKED_AHEAD]
            self._ask(part)
            for place in range(len(part)):
                pipe = self._process.stdout
                header = pipe.readline().split() if pipe is not None else []
                if pipe is None or not header:
                    raise CannotVerify("git cat-file ended before it had sent every blob", next_command="git fsck")
                if header[-1] == b"missing":
                    yield None
                    continue
                size = int(header[2])
                if most is not None and size > most:
                    self.close()  # rather than wait until all of it has come
                    self._start()
                    self._ask(part[place + 1 :])
                    yield size
                    continue
                data = pipe.read(size)
                pipe.read(1)
                yield data if header[1] == b"blob" and len(data) == size else None

    def close(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # git is gone, and what it was told with it
                    pipe.close()
        self._process.wait()


def read_blob(root: Path, name: str, limit: Limit) -> bytes:
    """The bytes of one blob; TooLong where it has more than the limit."""
    size = int(run_git(root, "cat-file", "-s", name))
    if size > limit.value():
        raise TooLong(name, size, limit)
    return run_git(root, "cat-file", "blob", name)


def sizes(root: Path, oids: Sequence[str]) -> list[int | None]:
    """How many bytes each object has; None for one that git does not have."""
    asked = "".join(f"{oid}\n" for oid in oids).encode()
    told = run_git(root, "cat-file", "--batch-check=%(objectsize)", data=asked).splitlines()
    return [int(line) if line.isdigit() else None for line in told]


def has_commit(root: Path) -> bool:
    """Whether HEAD names a commit at all; whether it can be read is another question."""
    with suppress(CannotVerify):
        return bool(run_git(root, "rev-parse", "--verify", "--quiet", "HEAD"))
    return False


def checked_out(root: Path, blobs: Sequence[tuple[str, str]]) -> list[bytes]:
    """The bytes of (path, blob) as git checks them out: with the work tree's line endings and filters."""
    plain = [(path, oid) for path, oid in blobs if "\n" not in path]
    # git announces a blob's size before filtering it, so an object that nobody has marks each end.
    end = os.urandom(20).hex()
    asked = "".join(f"{oid} {path}\n{end} {path}\n" for path, oid in plain)
    out = run_git(root, "cat-file", "--batch", "--filters", data=os.fsencode(asked))
    *answers, rest = out.split(f"\n{end} missing\n".encode())
    if rest or len(answers) != len(plain):
        raise CannotVerify(f"git cat-file ended in {root} before it had sent every blob", next_command="git fsck")
    found = {}
    for (path, _), answer in zip(plain, answers, strict=True):
        header, _, found[path] = answer.partition(b"\n")
        if header.split()[1:2] != [b"blob"]:
            # Without the old side, a run that died would pass for a new golden.
            said = f"expected HEAD's version of {path}, found that git does not have the object"
            raise CannotVerify(said, next_command="git fsck")
    for path, oid in blobs:
        if path not in found:  # git reads one path a line
            found[path] = run_git(root, "cat-file", "--filters", f"--path={path}", oid)
    return [found[path] for path, _ in blobs]


def write_object(root: Path, data: bytes) -> str:
    """Give bytes to git; its name for them."""
    return run_git(root, "hash-object", "-w", "--stdin", data=data).decode().strip()


@contextmanager
def only_writer(root: Path) -> Iterator[Path]:
    """Keeps other karat processes from writing goldens of this work tree at the same time.

    Gives a folder for half-written files; what a killed process left there is swept out.
    """
    from karat.system.files import expecting
    from karat.system.locks import holding

    path = git_path(root, "karat/writing")
    with ExitStack() as stack:
        with expecting(f"write {path}", path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(holding(path))
        temporary = path.parent / "workshop"
        temporary.mkdir(exist_ok=True)
        for left in temporary.iterdir():
            # Half a file of ours, or a whole one of somebody's that ours had just replaced.
            with suppress(OSError):  # whatever is no plain file is nobody's save
                write_object(root, read_plain(left, follow=False))
            left.unlink(missing_ok=True)
        yield temporary


_ELSEWHERE = "cd REPOSITORY  # or compare without git: karat diff OLD_FOLDER NEW_FOLDER"


def ensure_repository(start: Path, *, next_command: str = _ELSEWHERE) -> Path:
    """The root of the work tree around `start`; a clear error outside of one."""
    root = find_root(start)
    if root is None:
        said = f"expected a git work tree, found none around {start}; karat takes the old goldens from git"
        raise UsageError(said, next_command=next_command)
    return root


# Those of `git rev-parse --local-env-vars` that name a repository or a part of one; settings and credentials are left alone.
_FOREIGN = {
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE",
    "GIT_REPLACE_REF_BASE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_QUARANTINE_PATH", "GIT_DEFAULT_HASH",
}  # fmt: skip


def without_foreign(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which git finds the repository of the folder it runs in."""
    return {name: value for name, value in environment.items() if name not in _FOREIGN}


# git as a hunt runs it: it never asks anybody anything, and no hook or habit of the user's disturbs it. *Local* work sees
# no configuration but the repository's own; what talks to a *remote* keeps the user's, because credentials, proxies and
# `insteadOf` stand there.

# A dialogue would wait for ever in a hunt that runs overnight. GIT_ASKPASS is left alone: CI hands tokens over by it.
QUIET: Mapping[str, str] = {
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS": "",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
ALONE: Mapping[str, str] = {
    **QUIET,
    **_NO_FETCH,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_CONFIG_PARAMETERS": "",
}
# Objects of a mirror are borrowed by every work area, so nothing may ever collect them.
SETTINGS = (
    *_NO_PROGRAMS, "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false",
    "-c", "safe.directory=*",
    # With it --topo-order goes by who descends from whom; without, by dates, some of which are wrong.
    "-c", "fetch.writeCommitGraph=true",
)  # fmt: skip
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")


def is_commit_id(text: str) -> bool:
    """Whether a text is a whole commit id, and so no option, and no name that may move."""
    return bool(_COMMIT.fullmatch(text))


def local(repository: Path, *words: str, given: bytes = b"") -> bytes:
    """The output of a command on a repository here; git's own words on failure."""
    return _run(repository, words, ALONE, given=given)


def remote(repository: Path, *words: str, held: int | None = None) -> bytes:
    """The same for a command that talks to a server; `held` is a lock that lives as long as git does."""
    return _run(repository, words, QUIET, held=held)


def answer(repository: Path, *words: str) -> str | None:
    """What a question is answered with, or None where git says no."""
    try:
        return local(repository, *words).decode("utf-8", "replace").strip()
    except CannotVerify:
        return None


def hushed(text: str) -> str:
    """A text of git's without the user names and passwords that URLs may hold."""
    return _PASSWORD.sub("", text)


def _run(
    repository: Path, words: tuple[str, ...], env: Mapping[str, str], *, given: bytes = b"", held: int | None = None
) -> bytes:
    try:
        done = subprocess.run(
            ["git", *SETTINGS, f"--git-dir={repository}", *words],
            input=given,
            capture_output=True,
            env={**without_foreign(os.environ), **env},
            check=False,
            # Without a terminal of its own ssh cannot ask, either.
            start_new_session=True,
            pass_fds=() if held is None else (held,),
        )
    except FileNotFoundError as error:
        said = "git was expected on PATH and not found; this timeline is made of its history"
        raise CannotVerify(said, next_command="apt install git") from error
    if done.returncode:
        said = hushed(done.stderr.decode("utf-8", "replace").strip()) or f"exit code {done.returncode}"
        raise CannotVerify(f"git {words[0]} failed in {repository}: {said}", next_command="edit hunt.toml")
    return done.stdout
