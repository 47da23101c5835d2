"""Repositories of a hunt in a slot's work area: checked out at their commits, and built, maybe in a kept container.

An area borrows its objects from the mirror, so that making one takes no time and no room; where the mirror is not (another
node), it fetches from the URL. Every git command names its repository: an area may lie within a work tree of the user's, and
git, left to search, would find that one. Every command may be killed at any moment, and run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from karat.engines.job import JobCommand
from karat.hunts.model import Point, Window
from karat.hunts.settings import (
    IMAGE,
    REBUILD,
    CheckoutSettings,
    ContainerSettings,
    HuntSettings,
    mistake,
    parse_duration,
    split_command,
)
from karat.hunts.timelines.container_engine import KeptContainer, absolute_mount, check_mountable, open_container_engine
from karat.hunts.timelines.git_mirror import Mirror, from_timestamp
from karat.hunts.timelines.timeline import Workspace
from karat.system import git
from karat.system.files import write_bytes
from karat.system.secrets import EVERYTHING

_ALTERNATES = "karat-alternates"  # A file of the mirror: what an area is given to borrow from it.
_LOCAL = ("-c", "safe.directory=*")
_UNLOCK = ("-path", "*/objects", "-prune", "-o", "-type", "f", "-name", "*.lock", "-exec", "rm", "-f", "{}", "+")
_BYTECODE = ("-type", "d", "-name", "__pycache__", "-prune", "-exec", "rm", "-rf", "{}", "+")
_LAST_GOOD = "last good"
# The area belongs to another user than the container's root, as git sees it.
_TRUST = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
SHORT = 12  # Digits of a commit in ids and labels.


class Checkout(msgspec.Struct, frozen=True, kw_only=True):
    """One repository in a work area."""

    mirror: Mirror
    clean: bool = False

    @property
    def folder(self) -> str:
        return f"@AREA@/{self.mirror.name}"

    def commands(self, commit: str) -> list[JobCommand]:
        """Everything that brings the repository to a commit, whatever state it is in."""
        git_folder, url = f"{self.folder}/.git", self.mirror.url
        made = {**git.ALONE, "GIT_DEFAULT_HASH": "sha1"}  # whatever the user has for new repositories
        # Before, since what a build left in a folder would be in the way of a submodule; after, for one that is none any more.
        clean = [self._git("clean", "clean", "-ffdxq")] if self.clean else []
        borrowed = str(self.mirror.path / _ALTERNATES)
        # From the URL, unless the commit is there: borrowed, or fetched before.
        flags = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--")
        kept = ("+refs/heads/*:refs/karat/heads/*", "+refs/tags/*:refs/karat/tags/*")
        there = (*self._words(_LOCAL), "cat-file", "-e", f"{commit}^{{commit}}")
        same = (*self._words(_LOCAL), "diff", "--quiet", commit, "HEAD", "--")
        fetch = self._remote("fetch", "fetch", *flags, url, *kept)
        submodules = []
        if self.mirror.settings.submodules:
            # Who clones from this disk has submodules there, too; git refuses them since it cannot know whose they are.
            from_disk = ("-c", "protocol.file.allow=always") if url.startswith("/") else ()
            update = ("submodule", "--quiet", "update", "--init", "--recursive", "--force")
            submodules = [
                # Relative URLs of submodules are seen from the repository's own.
                self._git("origin", "config", "remote.origin.url", url),
                self._git("sync", "submodule", "--quiet", "sync", "--recursive"),
                self._remote("submodules", *from_disk, *update),
            ]
        return [
            self._command("folder", "mkdir", "-p", git_folder, cwd="@AREA@"),
            # Whoever held a lock of this area was killed: the slot is ours alone.
            self._command("heal", "find", git_folder, *_UNLOCK),
            self._command("init", *self._words(_LOCAL), "init", "--quiet", "--template=", env=made),
            self._command("borrow", "cp", borrowed, f"{git_folder}/objects/info/alternates", may_fail=True),
            msgspec.structs.replace(fetch, unless=there),
            *clean,
            # Python takes a source of the same size and second for the one it compiled.
            self._command("bytecode", "find", self.folder, *_BYTECODE, unless=same),
            self._git("checkout", "checkout", "--quiet", "--force", "--detach", commit, "--"),
            *submodules,
            *clean,
        ]

    def _words(self, settings: tuple[str, ...]) -> tuple[str, ...]:
        return ("git", *settings, f"--git-dir={self.folder}/.git", f"--work-tree={self.folder}")

    def _git(self, name: str, *words: str) -> JobCommand:
        """A command that sees no configuration but the area's own."""
        return self._command(name, *self._words(_LOCAL), *words, env=git.ALONE)

    def _remote(self, name: str, *words: str) -> JobCommand:
        """A command that may talk to a server, with the user's configuration."""
        words = (*self._words(git.SETTINGS), *words)
        return self._command(name, *words, env=git.QUIET, passed=EVERYTHING, timeout=7200.0)

    def _command(self, name: str, *argv: str, **more: Any) -> JobCommand:
        known = {"cwd": self.folder, "timeout": 1800.0, **more}
        return JobCommand(role="prepare", name=f"{self.mirror.name}: {name}", argv=argv, **known)


def open_container(
    hunt: HuntSettings, settings: CheckoutSettings, window: Window | None, place: Workspace, mirrors: Sequence[Mirror]
) -> KeptContainer | None:
    """The container, as hunt.toml wants it; None: builds run on the host."""
    if not settings.container:
        return None
    theirs = hunt.containers or ContainerSettings(image="")
    engine = open_container_engine(hunt, place)
    if engine.name == "pyxis":
        raise mistake('container: expected docker or podman to build in; set engine = "podman" under [containers]')
    # Another node has no mirror at that path; a mount of what is not there would stop the container.
    here = hunt.engine.kind == "local"
    borrowed = tuple(f"{check_mountable(m.path)}:{m.path}:ro" for m in mirrors) if here else ()
    own = (absolute_mount(mount, place.root) for mount in theirs.mounts)
    image = settings.container
    if image == _LAST_GOOD:
        image = window.old.parts.get(IMAGE, "") if window else ""
        if not image:
            raise mistake(f'container = "{_LAST_GOOD}": expected a containers stage before this one, found none')
    # Slots that own GPUs show a container their own ones; without any, it sees those it is given.
    divided = {"CUDA_VISIBLE_DEVICES": "@GPUS@"} if hunt.engine.gpus > 0 else {}
    return KeptContainer(
        engine=engine,
        image=image,
        name=f"karat-{place.hunt}-@SLOT@",
        hunt=place.hunt,
        mounts=("@AREA@:@AREA@", *borrowed, *own),
        env={"KARAT_OUT": "@OUT@", **_TRUST, **theirs.env, **divided},
        passed=hunt.probe.env_pass,
        gpus=theirs.gpus or ("all" if divided else None),
        options=("--cpuset-cpus=@CORES@", *theirs.options),
    )


class Repositories(msgspec.Struct, frozen=True, kw_only=True):
    """The repositories of a hunt, opened."""

    mirrors: Mapping[str, Mirror]
    tips: Mapping[str, str]  # Name → the branch's last commit.
    settings: CheckoutSettings
    container: KeptContainer | None = None

    def point(self, commits: Mapping[str, str], label: str, time: float) -> Point:
        """The point of these commits; every point has the container in common."""
        fixed = {IMAGE: self.container.image} if self.container else {}
        return Point(id=point_id(commits), label=label, when=from_timestamp(time), parts={**fixed, **commits})

    def commits(self, point: Point) -> dict[str, str]:
        return {name: point.parts[name] for name in self.mirrors if name in point.parts}

    def prepare(self, point: Point) -> list[JobCommand]:
        """Everything that brings a point there: check out, build."""
        commands = [self.container.start()] if self.container else []
        clean = self.settings.clean or self.settings.rebuild > 1
        for name, commit in self.commits(point).items():
            commands.extend(Checkout(mirror=self.mirrors[name], clean=clean).commands(commit))
        if words := split_command(self.settings.build):
            timeout = parse_duration(self.settings.build_timeout)
            commands.append(self.command(point, JobCommand(role="build", name="build", argv=words, timeout=timeout)))
        return commands

    def command(self, point: Point, command: JobCommand) -> JobCommand:
        commits = {self.mirrors[name].settings.commit_variable: commit for name, commit in self.commits(point).items()}
        if REBUILD in point.parts:
            commits["KARAT_REBUILD"] = point.parts[REBUILD]
        cwd = command.cwd
        if cwd == "@AREA@" and len(self.mirrors) == 1:  # of several, in the folder that holds them
            cwd = Checkout(mirror=next(iter(self.mirrors.values()))).folder
        placed = msgspec.structs.replace(command, cwd=cwd, env={**commits, **command.env})
        return self.container.inside(placed) if self.container else placed

    def notes(self) -> Iterator[str]:
        for name, mirror in self.mirrors.items():
            if mirror.stale:
                yield f"{mirror.stale}; using what was fetched before"
            if cut := mirror.shallow_at[:SHORT]:
                yield f"{name}: the history is cut off at {cut} (a shallow clone); older commits are not available"


def open_repositories(
    hunt: HuntSettings, settings: CheckoutSettings, window: Window | None, place: Workspace
) -> Repositories:
    mirrors = {each.name: Mirror(each, place) for each in hunt.repositories}
    tips = {}
    for name, mirror in mirrors.items():
        tips[name] = mirror.open(fresh=window is None)
        # What areas of this machine are given to borrow the mirror's objects.
        objects = f"{mirror.path / 'objects'}\n".encode()
        write_bytes(mirror.path / _ALTERNATES, objects, durable=False)
    container = open_container(hunt, settings, window, place, tuple(mirrors.values()))
    return Repositories(mirrors=mirrors, tips=tips, settings=settings, container=container)


def point_id(commits: Mapping[str, str]) -> str:
    """`xla@1a2b3c4d5e jax@5d6e7f8a9b`; the same in every run of a hunt."""
    return " ".join(f"{name}@{commit[:SHORT]}" for name, commit in commits.items())
