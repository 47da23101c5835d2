"""Work areas: the commands that bring repositories to their commits in a slot's kept folder, and build them there.

An area borrows its objects from the mirror, so that making one takes no time and no room; where the mirror is not (another
node), it fetches from the URL. Every git command names its repository: an area may lie within a work tree of the user's,
and git, left to search, would find that one. Every command may be killed at any moment, and run again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from karat.engines.job import Command
from karat.findings import Finding, Severity, UsageError
from karat.hunts import settings as durations
from karat.hunts.model import Point, Window
from karat.hunts.settings import (
    EDIT,
    IMAGE,
    CheckoutSettings,
    HuntSettings,
    check_names,
    folder_of,
    split_command,
    variable_name,
)
from karat.hunts.timelines.container_engine import (
    KeptContainer,
    absolute_mount,
    check_mountable,
    env_options,
    open_engine,
    remove_leftovers,
)
from karat.hunts.timelines.git_mirror import Mirror
from karat.hunts.timelines.timeline import Workspace
from karat.system import git
from karat.system.files import write_bytes

ALTERNATES = "karat-alternates"
"""A file of the mirror: what an area is given to borrow from it."""
_LOCAL = ("-c", "safe.directory=*")
_FROM_DISK = ("-c", "protocol.file.allow=always")
_FETCH_SECONDS = 7200.0
_CHECKOUT_SECONDS = 1800.0


class Checkout(msgspec.Struct, frozen=True, kw_only=True):
    """One repository in a work area."""

    mirror: Mirror
    clean: bool = False
    inside: tuple[str, ...] = ()
    """Folders of other repositories within it: those are cleaned on their own."""

    @property
    def folder(self) -> str:
        """Where it is checked out."""
        return f"@AREA@/{folder_of(self.mirror.settings)}"

    def commands(self, commit: str) -> list[Command]:
        """Everything that brings the repository to a commit, whatever state it is in."""
        git_folder = f"{self.folder}/.git"
        # Before, since what a build left in a folder would be in the way of a submodule; after, for one that is none any more.
        clean = [self._git("clean", "clean", "-ffdxq", *self._spared())] if self.clean else []
        borrowed = str(self.mirror.path / ALTERNATES)
        return [
            self._plain("folder", "mkdir", "-p", git_folder, cwd="@AREA@"),
            # Whoever held a lock of this area was killed: the slot is ours alone.
            self._plain(
                "heal", "find", git_folder, "-path", "*/objects", "-prune", "-o", "-type", "f",
                "-name", "*.lock", "-exec", "rm", "-f", "{}", "+",
            ),
            self._init(commit),
            self._plain(
                "borrow", "cp", borrowed, f"{git_folder}/objects/info/alternates", may_fail=True
            ),
            self._fetch(commit),
            *clean,
            self._git("checkout", "checkout", "--quiet", "--force", "--detach", commit, "--"),
            *(self._submodules() if self.mirror.settings.submodules else ()),
            *clean,
        ]  # fmt: skip

    def _init(self, commit: str) -> Command:
        hashed = {40: "sha1", 64: "sha256"}[len(commit)]
        command = self._git("init", "init", "--quiet", "--template=")
        return msgspec.structs.replace(command, env={**command.env, "GIT_DEFAULT_HASH": hashed})

    def _spared(self) -> list[str]:
        plain = (re.sub(r"([*?\[\]\\])", r"\\\1", folder) for folder in self.inside)
        return [f"--exclude=/{folder}/" for folder in plain]

    def _fetch(self, commit: str) -> Command:
        """From the URL, unless the commit is there: borrowed, or fetched before."""
        flags = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--")
        kept = ("+refs/heads/*:refs/karat/heads/*", "+refs/tags/*:refs/karat/tags/*")
        command = self._remote("fetch", "fetch", *flags, self.mirror.url, *kept)
        there = (*self._words(_LOCAL), "cat-file", "-e", f"{commit}^{{commit}}")
        return msgspec.structs.replace(command, unless=there)

    def _submodules(self) -> list[Command]:
        update = ("submodule", "--quiet", "update", "--init", "--recursive", "--force")
        # Who clones from this disk has submodules there, too; git refuses them since it cannot know whose they are.
        local = self.mirror.url.startswith("/")
        return [
            # Relative URLs of submodules are seen from the repository's own.
            self._git("origin", "config", "remote.origin.url", self.mirror.url),
            self._git("sync", "submodule", "--quiet", "sync", "--recursive"),
            self._remote("submodules", *(_FROM_DISK if local else ()), *update),
        ]

    def _words(self, settings: tuple[str, ...]) -> tuple[str, ...]:
        return ("git", *settings, f"--git-dir={self.folder}/.git", f"--work-tree={self.folder}")

    def _git(self, name: str, *words: str) -> Command:
        """A command that sees no configuration but the area's own."""
        return self._plain(name, *self._words(_LOCAL), *words, env=git.ALONE)

    def _remote(self, name: str, *words: str) -> Command:
        """A command that may talk to a server, with the user's configuration."""
        argv = (*self._words(git.SETTINGS), *words)
        command = self._plain(name, *argv, env=git.QUIET)
        return msgspec.structs.replace(command, timeout=_FETCH_SECONDS)

    def _plain(
        self,
        name: str,
        *argv: str,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        may_fail: bool = False,
    ) -> Command:
        return Command(
            role="prepare",
            name=f"{self.mirror.name}: {name}",
            argv=argv,
            cwd=cwd or self.folder,
            env=env or {},
            timeout=_CHECKOUT_SECONDS,
            may_fail=may_fail,
        )


def lend(mirror: Mirror) -> None:
    """Writes what areas of this machine are given to borrow the mirror's objects."""
    objects = f"{mirror.path / 'objects'}\n".encode()
    write_bytes(mirror.path / ALTERNATES, objects, durable=False)


def commit_variables(commits: Mapping[str, str]) -> dict[str, str]:
    """`KARAT_COMMIT_XLA` and so on: what a build may ask for."""
    return {f"KARAT_COMMIT_{variable_name(name)}": commit for name, commit in commits.items()}


# DOC-HERE build_container: The container that checkouts are built in: one per slot, kept, with the work area at the same path inside.

LAST_GOOD = "last good"
# The area belongs to another user than the container's root, as git sees it.
_TRUST = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}


def open_container(
    hunt: HuntSettings,
    settings: CheckoutSettings,
    window: Window | None,
    place: Workspace,
    mirrors: Sequence[Mirror],
) -> KeptContainer | None:
    """The container, as hunt.toml wants it; None: builds run on the host."""
    if not settings.container:
        return None
    theirs = hunt.containers
    here = hunt.engine.kind == "local"
    engine = open_engine(theirs.engine if theirs else None, here=here)
    if here:
        remove_leftovers(engine, place.hunt)
    check_mountable(place.work)
    env_options({**(theirs.env if theirs else {}), **hunt.probe.env})  # now, rather than in a job
    # Another node has no mirror at that path; a mount of what is not there would stop the container.
    borrowed = tuple(f"{check_mountable(m.path)}:{m.path}:ro" for m in mirrors) if here else ()
    own = tuple(absolute_mount(mount, place.root) for mount in theirs.mounts) if theirs else ()
    # Slots that own GPUs show a container their own ones; without any, it sees those it is given.
    divided = {"CUDA_VISIBLE_DEVICES": "@GPUS@"} if hunt.engine.gpus > 0 else {}
    return KeptContainer(
        engine=engine,
        image=_image(settings, window),
        name=f"karat-{place.hunt}-@SLOT@",
        hunt=place.hunt,
        mounts=("@AREA@:@AREA@", *borrowed, *own),
        env={"KARAT_OUT": "@OUT@", **_TRUST, **(theirs.env if theirs else {}), **divided},
        gpus=(theirs.gpus if theirs else None) or ("all" if divided else None),
        options=("--cpuset-cpus=@CORES@", *(theirs.options if theirs else ())),
    )


def _image(settings: CheckoutSettings, window: Window | None) -> str:
    if settings.container != LAST_GOOD:
        return settings.container
    found = window.old.parts.get("image", "") if window else ""
    if not found:
        raise UsageError(
            f'container = "{LAST_GOOD}": expected a containers stage before this one, found none',
            next_command=EDIT,
        )
    return found


# DOC-HERE repositories: Repositories: those of a hunt, opened: their mirrors, their places in a work area, the container they are built in.
#
# Both timelines that are made of git history (checkouts by time, commits one by one) stand on this.

SHORT = 12
"""Digits of a commit in ids and labels."""


class Repositories(msgspec.Struct, frozen=True, kw_only=True):
    """The repositories of a hunt, opened."""

    mirrors: Mapping[str, Mirror]
    tips: Mapping[str, str]
    """Name → the branch's last commit."""
    settings: CheckoutSettings
    container: KeptContainer | None = None

    @property
    def home(self) -> str:
        """Where builds and probes start: in the repository; of several, in the folder that holds them."""
        only = list(self.mirrors.values())
        return Checkout(mirror=only[0]).folder if len(only) == 1 else "@AREA@"

    @property
    def fixed(self) -> dict[str, str]:
        """Parts that every point has in common."""
        return {IMAGE: self.container.image} if self.container else {}

    def commits(self, point: Point) -> dict[str, str]:
        """Name → commit, of the repositories only."""
        return {name: point.parts[name] for name in self.mirrors if name in point.parts}

    def prepare(self, point: Point) -> list[Command]:
        """Everything that brings a point there: check out, build."""
        commits = self.commits(point)
        commands = [self.container.start()] if self.container else []
        for name, commit in commits.items():
            commands.extend(self._checkout(name).commands(commit))
        words = split_command(self.settings.build)
        if words:
            timeout = durations.parse_duration(self.settings.build_timeout)
            build = Command(role="build", name="build", argv=words, timeout=timeout)
            commands.append(self.command(point, build))
        return commands

    def _checkout(self, name: str) -> Checkout:
        mine = folder_of(self.mirrors[name].settings)
        others = (folder_of(each.settings) for each in self.mirrors.values())
        inside = tuple(str(folder.relative_to(mine)) for folder in others if mine in folder.parents)
        return Checkout(mirror=self.mirrors[name], clean=self.settings.clean, inside=inside)

    def command(self, point: Point, command: Command) -> Command:
        """A command of the user's at that point."""
        placed = msgspec.structs.replace(
            command,
            cwd=self.home if command.cwd == "@AREA@" else command.cwd,
            env={**commit_variables(self.commits(point)), **command.env},
        )
        return self.container.inside(placed) if self.container else placed

    def findings(self) -> list[Finding]:
        """What is odd about the repositories themselves."""
        stale = [
            Finding(
                kind="history-odd",
                severity=Severity.WARN,
                message=f"{mirror.stale}; what was fetched before is used",
                path=mirror.shown_url,
                next=f"git ls-remote {shlex.quote(mirror.shown_url)}",
            )
            for mirror in self.mirrors.values()
            if mirror.stale
        ]
        shallow = [
            Finding(
                kind="history-odd",
                severity=Severity.WARN,
                message=f"{name}: the history is cut off at {mirror.shallow_at[:SHORT]} (a shallow clone); "
                "older commits cannot be had",
                path=mirror.shown_url,
                next=f"git -C {shlex.quote(mirror.shown_url)} fetch --unshallow",
            )
            for name, mirror in self.mirrors.items()
            if mirror.shallow_at
        ]
        return stale + shallow


def open_repositories(
    hunt: HuntSettings, settings: CheckoutSettings, window: Window | None, place: Workspace
) -> Repositories:
    """Every repository of hunt.toml, cloned or as it is."""
    if not hunt.repositories:
        raise UsageError(
            "expected at least one [[repositories]] with name and url, found none",
            next_command=EDIT,
        )
    check_names(hunt.repositories)
    mirrors = {each.name: Mirror(each, place) for each in hunt.repositories}
    tips = {}
    for name, mirror in mirrors.items():
        tips[name] = mirror.open(fresh=window is None)
        lend(mirror)
    container = open_container(hunt, settings, window, place, tuple(mirrors.values()))
    return Repositories(mirrors=mirrors, tips=tips, settings=settings, container=container)


def point_id(commits: Mapping[str, str]) -> str:
    """`xla@1a2b3c4d5e jax@5d6e7f8a9b`; the same in every run of a hunt."""
    return " ".join(f"{name}@{commit[:SHORT]}" for name, commit in commits.items())


def history_findings(notes: Sequence[str]) -> list[Finding]:
    """Sentences about a history as findings."""
    return [Finding(kind="history-odd", severity=Severity.INFO, message=note) for note in notes]
