"""What approvals look at: the sides of a range with their settings, and the pull request whose reviews count.

The base as it is now says who may approve, so that no branch appoints its own approvers.
"""

from __future__ import annotations

import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from karat.config import load
from karat.findings import UsageError
from karat.net.client import Retry
from karat.policy.approvals.changes import (
    CONFIGURATIONS,
    CommitTree,
    RangeChanges,
    commit_of,
    file_waiver,
    policy_changes,
    range_of,
)
from karat.policy.approvals.code_owners import PLACES, CodeOwners, ForgeName, is_owner, parse
from karat.policy.approvals.reviews import Authors, Person, authors_of, commit_people
from karat.policy.approvals.waivers import PolicyChange
from karat.settings import DEFAULT_RULE, PolicySettings
from karat.system import git
from karat.system.ci import provider_of
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN, read_plain

CODE_OWNERS = "CODEOWNERS"
_HELP = "karat policy approvals --help"
_FALLBACKS = {"float64": ("gradient",)}  # Rule → whose approvers decide where it has none of its own.
_REF = re.compile(r"refs/pull/([1-9][0-9]{0,17})/(?:merge|head)")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    base: str
    head: str = "HEAD"
    pull: int | None = None
    merge: int | None = None
    repo: str | None = None
    sign_off: Path | None = None
    again: Command = Command("karat", "policy", "approvals", "--base", "REV")
    """The command as it was typed, for advice."""
    env: Mapping[str, str] = {}
    notice: Callable[[str], None] | None = None
    retry: Retry | None = None


def settings_at(side: CommitTree, folder: str) -> tuple[PolicySettings, tuple[str, ...]]:
    """The settings that hold in a folder of a commit, and where exemptions and baseline lie, seen from the root.

    `folder` is relative to the root, `` for the root. An error where nobody may approve, or where it is not clear who.
    """
    with tempfile.TemporaryDirectory(prefix="karat-") as made:
        root = Path(made).resolve()
        (root / ".git").mkdir()  # nothing above it is looked at
        (root / folder).mkdir(parents=True, exist_ok=True)
        here = PurePosixPath(folder)
        above = (here, *here.parents) if folder else (here,)
        for path in ((place / name).as_posix() for place in above for name in CONFIGURATIONS):
            data = side.read(path)
            if data is not None:
                (root / path).write_bytes(data)
        try:
            config = load(root / folder)
        except UsageError as error:
            commit, message = side.commit[:12], str(error).replace(f"{root}{os.sep}", "")
            raise UsageError(
                f"{message} (at {commit})", next_command=Command("git", "show", commit, "--stat")
            ) from error
        file = config.file.relative_to(root).as_posix() if config.file else ""
    settings, home = config.policy, posixpath.dirname(file)
    _inside("", settings.signers, "signers")
    lists = tuple(_inside(home, getattr(settings, key), key) for key in ("exemptions", "baseline"))
    if not settings.approvers:
        raise UsageError(
            f"expected [policy] approvers in karat.toml at {side.commit[:12]}, the base of the range, found none; add for "
            'example approvers = {default = ["@org/numerics", "CODEOWNERS"]} there, and merge it first: '
            "a branch does not appoint its own approvers",
            next_command=Command("git", "show", f"{side.commit[:12]}:{file or 'karat.toml'}"),
        )
    for rule, people in settings.approvers.items():
        if not people:
            raise _misconfigured(f"approvers of {rule}: the list is empty")
        for word in people:
            if word != CODE_OWNERS and not is_owner(word):
                known = "@user, @org/team, an e-mail address or CODEOWNERS"
                raise _misconfigured(f"approvers of {rule}: expected {known}, found {word!r}")
    return settings, lists


def _inside(home: str, name: str, key: str) -> str:
    path = posixpath.normpath(posixpath.join(home, name))
    if path.startswith(("/", "../")) or path in {"..", "."}:
        raise _misconfigured(f"{key}: expected a file of the repository, found {name!r}")
    return path


def _misconfigured(what: str) -> UsageError:
    return UsageError(f"[policy] {what}", next_command="karat config")


def approvers_of(rule: str, approvers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Who may approve a waiver from a rule; raises where nobody may."""
    for name in (rule, *_FALLBACKS.get(rule, ()), DEFAULT_RULE):
        if approvers.get(name):
            return approvers[name]
    if rule == "policy":  # those whom it is about
        return tuple(dict.fromkeys(word for people in approvers.values() for word in people))
    known = ", ".join(sorted(approvers))
    raise _misconfigured(f"approvers: expected some for the rule {rule}, or a default, found only {known}")


class Sides:
    """One range of one repository."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.root = git.ensure_repository(folder, next_command="cd REPOSITORY && karat policy approvals --base REV")
        within = folder.resolve().relative_to(self.root.resolve()).as_posix().removeprefix(".")
        self._base = options.base
        self.tip = CommitTree(self.root, commit_of(self.root, options.base))
        # The base as it is now, not as it was when the branch began: whoever has left may approve nothing.
        self.settings, self._lists = settings_at(self.tip, within)
        self.forge = forge_of(options, self.settings.forge)
        self.move(options.head)

    def move(self, head: str) -> None:
        """Take another commit for the head."""
        self.span = range_of(self.root, self._base, head)
        self._before = CommitTree(self.root, self.span.base)
        self._after = CommitTree(self.root, self.span.head)

    def changes(self) -> RangeChanges:
        """What the range grants; changing who may approve is a grant, too."""
        found = policy_changes(self.span, self.settings.tests, self._lists)
        # CODEOWNERS and the list of keys, where they count and the range changes them.
        waivers = []
        if any(CODE_OWNERS in people for people in self.settings.approvers.values()):
            owners = self.owners(self._after)
            if self.owners(self._before) != owners:
                places = PLACES[self._kind]
                place = self._after.first(places) or self._before.first(places) or (CODE_OWNERS, b"")
                waivers.append(file_waiver(place[0], CODE_OWNERS, repr(owners)))
        keys = self.settings.signers
        signers = self._after.read(keys)
        if self._before.read(keys) != signers:
            waivers.append(file_waiver(keys, "keys that may sign", repr(signers)))
        extra = (PolicyChange(waiver=waiver) for waiver in waivers)
        return msgspec.structs.replace(found, changes=(*found.changes, *extra))

    def owners(self, side: CommitTree | None = None) -> CodeOwners | None:
        """CODEOWNERS of a side, by default of the base as it is now."""
        found = (side or self.tip).first(PLACES[self._kind])
        return parse(found[1].decode("utf-8", "replace"), self._kind) if found else None

    def authors(self) -> Authors:
        """Whose work the range is, by its commits; merges make nobody an author."""
        words = ("log", "-z", "--no-merges", "--format=%H%n%ae%n%ce%n%B")
        out = git.run_git(self.root, *words, f"{self.span.base}..{self.span.head}", "--")
        people: list[Person] = []
        for entry in filter(None, out.decode("utf-8", "replace").split("\0")):
            commit, author, committer, message = entry.split("\n", 3)
            people += commit_people(commit, message, (author, None), (committer, None))
        return authors_of(people)

    @property
    def _kind(self) -> ForgeName:
        if self.forge is not None:
            return self.forge
        return "gitlab" if self.tip.read(PLACES["gitlab"][-1]) is not None else "github"


class RequestPlace(msgspec.Struct, frozen=True, kw_only=True):
    forge: ForgeName
    repo: str
    number: int


def request_of(options: Options, forge: ForgeName | None, root: Path) -> RequestPlace | None:
    """The request that is meant; None where nothing tells."""
    if options.pull is not None and options.merge is not None:
        raise UsageError("expected one of --pr and --merge-request, found both", next_command=_HELP)
    if forge is None:
        return None
    number = options.pull if forge == "github" else options.merge
    if number is None:
        number = _number(forge, options.env)
    if number is None:
        return None
    names = {
        "github": ("GITHUB_REPOSITORY",),
        # A pipeline of a fork runs in the fork, and its request is in the project that it asks to merge into.
        "gitlab": ("CI_MERGE_REQUEST_PROJECT_ID", "CI_PROJECT_ID", "CI_PROJECT_PATH"),
    }[forge]
    repo = options.repo or next(filter(None, map(options.env.get, names)), None)
    if repo is None:
        if (origin := git.origin(root)) is None:
            text = f"expected --repo, {' or '.join(names)}, or a remote called origin, found none"
            raise UsageError(text, next_command=_HELP)
        repo = origin[1]
    return RequestPlace(forge=forge, repo=repo, number=number)


def forge_of(options: Options, configured: ForgeName | None) -> ForgeName | None:
    """GitHub or GitLab: by the option, karat.toml, or the CI that this runs in."""
    if options.pull is not None:
        return "github"
    if options.merge is not None:
        return "gitlab"
    provider = configured or provider_of(options.env)
    return provider if provider in {"github", "gitlab"} else None  # type: ignore[return-value]


def _number(forge: ForgeName, env: Mapping[str, str]) -> int | None:
    if forge == "gitlab":
        text = env.get("CI_MERGE_REQUEST_IID", "")
        return int(text) if _NUMBER.fullmatch(text) else None
    if found := _REF.fullmatch(env.get("GITHUB_REF", "")):
        return int(found[1])
    path = env.get("GITHUB_EVENT_PATH", "")  # of the event that started the workflow
    try:
        event = msgspec.json.decode(read_plain(path, GOLDEN), type=_Event) if path else _Event()
    except (OSError, ValueError, RecursionError):
        return None  # an event of another kind
    return event.pull_request.number if event.pull_request else None


class _PullNumber(msgspec.Struct, frozen=True):
    number: Annotated[int, msgspec.Meta(ge=1, le=10**18)]


class _Event(msgspec.Struct, frozen=True):
    pull_request: _PullNumber | None = None
