"""Kept containers: one that stays while many commands are run in it, so that builds are incremental.

The image must have `sleep` (busybox's will do), which is what keeps the container alive. What commands leave in the
container's own files stays until it is removed; what they leave in mounted folders stays for good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from karat.engines.job import Command
from karat.hunt.container_engine import ContainerEngine, env_options
from karat.hunt.image_reference import parse

_START_SECONDS = 7200.0
"""The image may have to be pulled."""


class KeptContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container that stays while commands are run in it, one per slot."""

    engine: ContainerEngine
    image: str
    name: str
    """Without what tells two images apart; `karat-HUNT-@SLOT@`, as the runner fills it in."""
    hunt: str = ""
    """The hunt's id: what an earlier, killed process of it left behind is found by it."""
    mounts: tuple[str, ...] = ()
    """`HOST:CONTAINER[:ro]`, absolute."""
    env: Mapping[str, str] = {}
    """For every command."""
    gpus: str | None = None
    options: tuple[str, ...] = ()
    """More words for `run`."""

    @property
    def full_name(self) -> str:
        """The container's name; another image, mount or option gets another one, and never the old container."""
        of = msgspec.json.encode((self.image, self.mounts, self.gpus, self.options))
        return f"{self.name}-{hashlib.sha256(of).hexdigest()[:8]}"

    def start(self) -> Command:
        """Makes it run, unless it does; one that was stopped is started again."""
        options = [
            "--name", self.full_name,
            *(("--replace",) if self.engine.name == "podman" else ()),
            *self.engine.labels(self.hunt or self.name),
            *(word for mount in self.mounts for word in ("--volume", mount)),
            *self.engine.gpus(self.gpus),
            "--entrypoint", "sleep",
            *self.options,
        ]  # fmt: skip
        return Command(
            role="prepare",
            name="container",
            argv=self.engine.run_detached(
                self.image, ("infinity",), options, insecure=parse(self.image).is_loopback
            ),
            unless=self.engine.start(self.full_name),
            timeout=_START_SECONDS,
            when_killed=(self.engine.remove(self.full_name),),
        )

    def inside(self, command: Command) -> Command:
        """The same command, run in the container, in the same folder and with its variables."""
        options, env = env_options({**self.env, **command.env})
        return msgspec.structs.replace(
            command,
            argv=self.engine.exec(
                self.full_name, command.argv, ("--workdir", command.cwd, *options)
            ),
            cwd="@AREA@",
            env=env,
            unless=self._check(command.unless, command.cwd),
            # Clients leave behind what they started in a container; a new start ends it, and keeps the files.
            when_killed=(self.engine.restart(self.full_name), *command.when_killed),
        )

    def remove_argv(self) -> tuple[str, ...]:
        """Ends and removes it."""
        return self.engine.remove(self.full_name)

    def _check(self, unless: tuple[str, ...], cwd: str) -> tuple[str, ...]:
        return self.engine.exec(self.full_name, unless, ("--workdir", cwd)) if unless else ()
