"""Container engines: docker, podman, and pyxis on Slurm, through the words of their clients.

Most of this makes command lines, which an engine of `karat.engines` runs, maybe on another machine; what removes or inspects
something runs one itself. Values of variables do not stand on command lines: the client is told the name,
and takes the value from its own environment.

How a client's failure looks: it prints one line of its own and exits with 125, 126, 127 or 255 (docker's `exec` also
with 1). A command inside may exit with the same numbers, so it takes both to tell; see `engine_failure`.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from karat.engines.job import JobCommand
from karat.findings import CannotVerify
from karat.hunts.settings import ContainerSettings, HuntSettings, mistake
from karat.hunts.timelines.timeline import Workspace
from karat.net.registry import ImageReference, parse
from karat.system.command import Command
from karat.system.hashes import sha256_hex
from karat.system.secrets import EVERYTHING

Kind = Literal["docker", "podman", "pyxis"]

_NAMES: tuple[Kind, ...] = ("docker", "podman")
_ANSWER_SECONDS = 30.0
_MOUNT = re.compile(r"(?P<host>[^:]+):(?P<inside>/[^:]*)(?P<options>:[A-Za-z,]+)?")
# What a client writes last when it, and not the command inside, has failed. Programs, too, end with 1 and with 255, and
# may well write "Error: …" then; of those only what is said of the container itself is taken for the client's word.
_OF_SLURM = r"slurmstepd[^:]*: error: (?:pyxis|execve|.*spank)|"
_OWN_LINES = {
    code: re.compile(
        _OF_SLURM
        + r"Error: |docker: |OCI runtime exec failed: |Error response from daemon: |Cannot connect to the Docker daemon"
        if code in {125, 126, 127}
        else _OF_SLURM
        + r"(?:Error: |Error response from daemon: )+.*(?:container state improper|exec session|[Nn]o such container"
        r"|is not running|is restarting|is paused)|Cannot connect to the Docker daemon"
    )
    for code in (1, 2, 125, 126, 127, 255)
}
_AFTERWARDS = re.compile(r"""--help'|^time="[^"]*" level=""")
# Variables that the client itself obeys: their values stand on the command line, and not in its environment. None of them
# holds a secret; proxies, which may, are the client's as well, and do it no harm: the image is here by then.
_CLIENT_OBEYS = re.compile(
    r"PATH|HOME|TMPDIR|LD_.*|XDG_.*|DBUS_.*|DOCKER_(?:HOST|CONTEXT|CONFIG|CERT_PATH|TLS.*|API_VERSION)"
    r"|CONTAINERS?_.*|_CONTAINERS_.*|PODMAN_.*|BUILDAH_.*|STORAGE_.*|REGISTRY_AUTH_FILE|REGISTRIES_.*"
    r"|GO(?:DEBUG|GC|MAXPROCS|TRACEBACK|MEMLIMIT)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class ContainerEngine(msgspec.Struct, frozen=True, kw_only=True):
    """A client that answers, and how it is spoken to."""

    name: Kind
    program: str  # As it is found on the PATH of whoever runs it: another machine may have it elsewhere.
    version: str = ""

    def pull(self, image: str, *, insecure: bool = False) -> tuple[str, ...]:
        return (self.program, "pull", "--quiet", *self._tls_options(insecure=insecure), image)

    def run(self, image: str, argv: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
        """Runs a command in a fresh container, which is gone afterwards; pyxis keeps a named one until the job ends."""
        if self.name == "pyxis":
            return (self.program, *_srun_words(parse(image), options), *argv)
        return (self.program, "run", "--rm", *options, image, *argv)

    def run_detached(
        self, image: str, argv: Sequence[str], options: Sequence[str], *, insecure: bool = False
    ) -> tuple[str, ...]:
        return (self.program, "run", "--detach", *self._tls_options(insecure=insecure), *options, image, *argv)

    def exec(self, name: str, argv: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
        return (self.program, "exec", *options, name, *argv)

    def start(self, name: str) -> tuple[str, ...]:
        """Starts a container that is stopped; one that runs goes on, and one that is not there is a failure."""
        return (self.program, "start", name)

    def restart(self, name: str) -> tuple[str, ...]:
        """Ends whatever runs in a container, at once, and starts it again."""
        return (self.program, "restart", "--time", "0", name)

    def remove(self, *names: str) -> tuple[str, ...]:
        # podman first asks nicely, and waits ten seconds.
        now = ("--time", "0") if self.name == "podman" else ()
        return (self.program, "rm", "--force", *now, *names)

    def named(self, name: str, hunt: str) -> tuple[str, ...]:
        """Options by which one container is known, and that it is of this hunt and of this process."""
        labels = (word for label in _labels(hunt) for word in ("--label", label))
        return ("--name", name, *(("--replace",) if self.name == "podman" else ()), *labels)

    def gpus(self, wanted: str | None) -> tuple[str, ...]:
        """Options that show GPUs to a container: `all`, a number, or `device=0,1`."""
        if wanted is None or wanted in {"", "none", "0"}:
            return ()
        listed = re.fullmatch(r"all|\d+|device=([\w:-]+(?:,[\w:-]+)*)", wanted)
        if not listed:
            raise mistake(f"containers.gpus: expected 'all', a number, or 'device=0,1', found {wanted!r}")
        if self.name == "pyxis":
            return ()  # those of the job are shown to all that it runs
        if self.name == "docker":
            # docker reads this option as a row of CSV, so that a list needs quotes of its own.
            return ("--gpus", f'"{wanted}"' if "," in wanted else wanted)
        devices = listed[1].split(",") if listed[1] else [wanted] if wanted == "all" else range(int(wanted))
        return tuple(word for device in devices for word in ("--device", f"nvidia.com/gpu={device}"))

    def remove_leftovers(self, hunt: str) -> None:
        """Remove this hunt's containers that an earlier process has left behind on this machine."""
        labels = _labels(hunt)
        own = set(self._names(*labels))
        if names := [name for name in self._names(labels[0]) if name not in own]:
            _run_client(self.remove(*names))

    def remove_named(self, hunt: str, name: str) -> None:
        """Remove the containers of that name, of every slot, that this process started on this machine."""
        pattern = re.escape(name).replace("@SLOT@", r"\d+")
        if names := [one for one in self._names(*_labels(hunt)) if re.fullmatch(pattern, one)]:
            _run_client(self.remove(*names))

    def inspect(self, image: str) -> Mapping[str, Any] | None:
        done = _run_client((self.program, "image", "inspect", image))
        if done is None or done.returncode != 0:
            return None
        found = msgspec.json.decode(done.stdout)
        return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else None

    def image_sizes(self, images: Sequence[str]) -> dict[str, int]:
        """Bytes of those images that are here, as the engine counts them."""
        found = {image: self.inspect(image) for image in images}
        return {image: int(known.get("Size", 0)) for image, known in found.items() if known}

    def _names(self, *labels: str) -> list[str]:
        """Names of containers, running or not, that have all of these labels."""
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        done = _run_client((self.program, "ps", "--all", *filters, "--format", "{{.Names}}"))
        return done.stdout.decode(errors="replace").split() if done is not None else []

    def _tls_options(self, *, insecure: bool) -> tuple[str, ...]:
        # docker decides by the daemon's settings, and takes loopback as it is.
        return ("--tls-verify=false",) if insecure and self.name == "podman" else ()


def find_engine(wanted: str | None = None, *, here: bool = True) -> ContainerEngine:
    """The engine that is wanted, or the first of docker and podman that answers.

    One that is wanted elsewhere, on a cluster, need not answer here.
    """
    found = {}
    for name in _NAMES:
        if wanted not in {None, name}:
            continue
        if wanted and not here:
            return ContainerEngine(name=name, program=name)
        # A client alone is no engine: only its server's version says that something will run.
        done = _run_client((name, "version", "--format", "{{.Server.Version}}")) if shutil.which(name) else None
        if done is None:
            found[name] = f"did not answer within {_ANSWER_SECONDS:.0f} s" if shutil.which(name) else "not installed"
        elif done.returncode == 0:
            return ContainerEngine(name=name, program=name, version=done.stdout.decode().strip())
        else:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            found[name] = lines[-1] if lines else f"exit code {done.returncode}"
    said = "; ".join(f"{name}: {why}" for name, why in found.items())
    if not said:
        raise mistake(f"expected docker or podman as the container engine, found {wanted!r}")
    said = f"expected a container engine that answers ({' or '.join(found)}), found none: {said}"
    raise CannotVerify(said, next_command=Command(wanted or "podman", "version"))


def _srun_words(image: ImageReference, options: Sequence[str]) -> tuple[str, ...]:
    """What srun is told with pyxis, of the words that the others understand; more words are srun's own."""
    # enroot writes `registry#image:tag`, and takes a digest for the tag.
    words = [f"--container-image={image.host}#{image.repository}:{image.digest or image.tag or 'latest'}"]
    mounts, names, left = [], [], iter(options)
    for word in left:
        if word == "--volume":
            mounts.append(next(left))
        elif word == "--env":
            names.append(next(left))
        elif word == "--name":
            words.append(f"--container-name={next(left)}")
        elif word == "--label":
            next(left)
        elif not word.startswith("--cpuset-cpus"):
            words.append(word)
    # Those that have their value here are not for srun itself.
    values = [name for name in names if "=" in name]
    for option, parts in (("mounts", mounts), ("env", [name for name in names if "=" not in name])):
        words += [f"--container-{option}={','.join(parts)}"] if parts else []
    return ("--ntasks=1", "--overlap", *words, *(("env", *values) if values else ()))


def find_pyxis(wanted: str | None, kind: str) -> ContainerEngine | None:
    """pyxis, if it is wanted, or is there on Slurm and nothing else is wanted."""
    if wanted not in {None, "pyxis"} or (wanted is None and kind != "slurm"):
        return None
    if kind != "slurm":
        raise mistake(f'containers.engine = "pyxis": expected kind = "slurm" under [engine], found {kind!r}')
    done = _run_client(("srun", "--help")) if shutil.which("srun") else None
    if done is not None and b"--container-image" in done.stdout:
        return ContainerEngine(name="pyxis", program="srun")
    if wanted:
        said = "expected srun with the plugin pyxis, whose `srun --help` names --container-image, found it without"
        raise CannotVerify(said, next_command=Command("srun", "--help"))
    return None


def open_container_engine(hunt: HuntSettings, place: Workspace) -> ContainerEngine:
    """The engine of a hunt's containers: what no job could do is refused now, what an earlier process left is removed."""
    own = hunt.containers or ContainerSettings(image="")
    check_mountable(place.work)
    env_options({**own.env, **hunt.probe.env})
    here = hunt.engine.kind == "local"
    engine = find_pyxis(own.engine, hunt.engine.kind) or find_engine(own.engine, here=here)
    if here:
        engine.remove_leftovers(place.hunt)
    return engine


def env_options(env: Mapping[str, str], passed: Sequence[str] = ()) -> tuple[tuple[str, ...], dict[str, str]]:
    """Options that hand variables to a container, and those that the client must have in its own environment.

    The client finds those that are `passed` there already.
    """
    options: list[str] = []
    theirs: dict[str, str] = {}
    for name, value in sorted(env.items()):
        if not _NAME.fullmatch(name):
            raise mistake(f"env: expected the name of an environment variable, found {name!r}")
        if _CLIENT_OBEYS.fullmatch(name):
            options += ("--env", f"{name}={value}")
        else:
            options += ("--env", name)
            theirs[name] = value
    options += (word for name in passed if name not in env for word in ("--env", name))
    return tuple(options), theirs


def engine_failure(exit_code: int | None, output: bytes) -> str:
    """What the client itself said, if it and not the command inside has failed; else nothing."""
    own = _OWN_LINES.get(exit_code) if exit_code is not None else None
    lines = output[-8192:].decode(errors="replace").split("\n")
    # After its own line docker advises a look at its help, or logs that it waits no longer.
    said = [line.strip() for line in lines if line.strip() and not _AFTERWARDS.search(line)]
    return said[-1] if own and said and own.match(said[-1]) else ""


@cache
def session() -> str:
    """One word per process, by which its containers are told from those of a process that was killed."""
    return secrets.token_hex(4)


def _labels(hunt: str) -> tuple[str, str]:
    return f"karat.hunt={hunt}", f"karat.session={session()}"


def _run_client(argv: Sequence[str]) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=_ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None


def absolute_mount(mount: str, root: Path) -> str:
    """`HOST:CONTAINER[:ro]` with an absolute HOST."""
    found = _MOUNT.fullmatch(mount)
    if not found:
        raise mistake(f"containers.mounts: expected HOST:CONTAINER or HOST:CONTAINER:ro, found {mount!r}")
    host = (root / Path(found["host"]).expanduser()).resolve()
    if not host.exists():
        # docker would make an empty folder of it, and the probe would find nothing there.
        raise mistake(f"containers.mounts: expected {mount!r} to name an existing folder or file, found none at {host}")
    return f"{check_mountable(host)}:{found['inside']}{found['options'] or ''}"


def check_mountable(host: Path) -> Path:
    """A path of this machine that an engine can mount: in its words a colon ends a path."""
    if ":" in str(host):
        said = f"expected a path without a colon, which container engines cannot mount, found {host}"
        raise mistake(f"{said}; set work in hunt.toml to another folder")
    return host


class KeptContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container that stays while commands are run in it, one per slot, so that builds are incremental.

    The image must have `sleep` (busybox's will do), which keeps the container alive. What commands leave in the container's
    own files stays until it is removed; what they leave in mounted folders stays for good.
    """

    engine: ContainerEngine
    image: str
    name: str  # Without what tells two images apart; `karat-HUNT-@SLOT@`, as the runner fills it in.
    hunt: str = ""  # The hunt's id, by which is found what an earlier, killed process of it left behind.
    mounts: tuple[str, ...] = ()  # `HOST:CONTAINER[:ro]`, absolute.
    env: Mapping[str, str] = {}  # For every command.
    passed: tuple[str, ...] = ()  # Variables of the client's own environment for every command.
    gpus: str | None = None
    options: tuple[str, ...] = ()  # More words for `run`.

    @property
    def full_name(self) -> str:
        """The container's name; another image, mount or option gets another one, and never the old container."""
        of = msgspec.json.encode((self.image, self.mounts, self.gpus, self.options))
        return f"{self.name}-{sha256_hex(of)[:8]}"

    def start(self) -> JobCommand:
        """Makes it run, unless it does; one that was stopped is started again."""
        named = self.engine.named(self.full_name, self.hunt or self.name)
        mounts = [word for mount in self.mounts for word in ("--volume", mount)]
        options = (*named, *mounts, *self.engine.gpus(self.gpus), "--entrypoint", "sleep", *self.options)
        return JobCommand(
            role="prepare",
            name="container",
            argv=self.engine.run_detached(self.image, ("infinity",), options, insecure=parse(self.image).is_loopback),
            unless=self.engine.start(self.full_name),
            timeout=7200.0,  # the image may have to be pulled
            passed=EVERYTHING,
            when_killed=(self.engine.remove(self.full_name),),
        )

    def remove(self) -> None:
        """Removes those of every slot that this process started on this machine."""
        self.engine.remove_named(self.hunt, self.full_name)

    def inside(self, command: JobCommand) -> JobCommand:
        """The same command, run in the container, in the same folder and with its variables."""
        options, env = env_options({**self.env, **command.env}, self.passed)
        there = ("--workdir", command.cwd)
        return msgspec.structs.replace(
            command,
            argv=self.engine.exec(self.full_name, command.argv, (*there, *options)),
            cwd="@AREA@",
            env=env,
            unless=self.engine.exec(self.full_name, command.unless, there) if command.unless else (),
            # Clients leave behind what they started in a container; a new start ends it, and keeps the files.
            when_killed=(self.engine.restart(self.full_name), *command.when_killed),
        )
