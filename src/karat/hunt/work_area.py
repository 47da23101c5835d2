"""Work areas: the commands that bring repositories to their commits in a slot's kept folder, and build them there.

An area borrows its objects from the mirror, so that making one takes no time and no room; where the mirror is not (another
node), it fetches from the URL. Every git command names its repository: an area may lie within a work tree of the user's,
and git, left to search, would find that one. Every command may be killed at any moment, and run again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from karat.engines.job import Command
from karat.goldens.atomic import write_bytes
from karat.hunt import git_program
from karat.hunt.mirrors import Mirror
from karat.hunt.repository_names import folder_of, variable

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
        return self._plain(name, *self._words(_LOCAL), *words, env=git_program.ALONE)

    def _remote(self, name: str, *words: str) -> Command:
        """A command that may talk to a server, with the user's configuration."""
        argv = (*self._words(git_program.SETTINGS), *words)
        command = self._plain(name, *argv, env=git_program.QUIET)
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
    return {f"KARAT_COMMIT_{variable(name)}": commit for name, commit in commits.items()}
