"""Words of a command as they can be pasted into a shell, whatever a terminal and a report do to what cannot be printed. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from karat.hunts.journal.records import NOT_KEPT
from karat.hunts.model import Point
from karat.hunts.probe.jobs import fill_in
from karat.hunts.settings import HuntSettings, RepositorySettings, split_command
from karat.hunts.timelines.container_engine import ContainerEngine, Kind
from karat.report.words import printable

_BEFORE_A_BREAK = re.compile(r"\s\n")


def shell_quote(word: str) -> str:
    """A word for a shell. Line breaks stay breaks, in quotes; what would be lost in printing is written as `$'…'`.

    The former is understood by every shell, the latter by bash, zsh and ksh.
    """
    lines = word.split("\n")
    if all(printable(line) == line for line in lines) and not _BEFORE_A_BREAK.search(word):
        return shlex.quote(word)
    # What a log would take for a command of its own is broken up as well.
    escaped = "".join(map(_character, word)).replace("##[", "#\\043[")
    return f"$'{escaped}'"


def _character(one: str) -> str:
    if one in "\\'":
        return f"\\{one}"
    if one.isprintable():
        return one
    # As bytes, which may be no text at all.
    return "".join(f"\\{byte:03o}" for byte in one.encode("utf-8", "surrogateescape"))


_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)


def reproduce_command(
    settings: HuntSettings,
    timeline: str,
    point: Point,
    identity: Mapping[str, str],
    *,
    engine: Kind = "docker",
) -> str:
    """The line, seen from hunt.toml's folder; empty where one is not enough. `engine` runs containers."""
    makers: dict[str, Callable[[HuntSettings, Point, Mapping[str, str]], str]] = {
        "containers": partial(_container, engine),
        "checkouts": _checkout,
        "commits": _checkout,
        "packages": _package,
        "values": _value,
    }
    maker = makers.get(timeline)
    return maker(settings, point, identity) if maker is not None else ""


def _commands(settings: HuntSettings, point: Point) -> list[str]:
    """What is run at a point, setup first, with what karat would put into it."""
    named = {"{point}": point.id, "{value}": point.parts.get("value", "{value}")}
    asked = (split_command(settings.probe.setup), split_command(settings.probe.command))
    return [" ".join(_word(word, named) for word in words) for words in asked if words]


def _variables(settings: HuntSettings) -> list[str]:
    """What the commands find in their environment, as assignments of a shell."""
    out = ['KARAT_OUT="$(mktemp -d)"'] if _leaves_files(settings) else []
    return [*out, *_assignments(settings.probe.env)]


def _leaves_files(settings: HuntSettings) -> bool:
    probe = settings.probe
    return bool(probe.files) or any(metric.file for metric in probe.metrics)


def _steps(variables: Sequence[str], commands: Sequence[str]) -> list[str]:
    """Commands, all with the same variables."""
    if len(commands) == 1:
        return [" ".join([*variables, *commands])]
    return [*([f"export {' '.join(variables)}"] if variables else []), *commands]


def _word(word: str, named: Mapping[str, str]) -> str:
    """A word for a shell; `{root}` is the folder it is pasted in."""
    if "{root}" in word:
        return '"$PWD"'.join(_word(piece, named) if piece else "" for piece in word.split("{root}"))
    return shell_quote(fill_in(word, named))


def _assignments(env: Mapping[str, str]) -> list[str]:
    return [_assignment(name, text) for name, text in env.items()]


def _assignment(name: str, text: str) -> str:
    """What may be a secret, or was not kept, is taken from the reader's own environment: the line goes into issues."""
    hidden = text == NOT_KEPT or _SECRET.search(name)
    return f'{name}="${name}"' if hidden else f"{name}={shell_quote(text)}"


def _container(
    found: Kind, settings: HuntSettings, point: Point, identity: Mapping[str, str]
) -> str:
    if settings.containers is None or "image" not in point.parts:
        return ""
    asked = settings.containers
    engine = asked.engine or found
    image = point.parts["image"]
    digest = identity.get("image.digest", "")
    # By its digest: a tag may have moved since.
    exact = f"{_without_tag(image)}@{digest}" if digest.startswith("sha256:") else image
    mounts = [word for mount in asked.mounts for word in ("-v", _mount(mount))]
    if _leaves_files(settings):
        mounts += ["-v", '"$(mktemp -d)":/karat-out', "-e", "KARAT_OUT=/karat-out"]
    env = {**asked.env, **settings.probe.env}
    values = [word for one in _assignments(env) for word in ("-e", one)]
    client = ContainerEngine(name=engine, program=engine)
    options = [shell_quote(option) for option in (*client.gpus(asked.gpus), *asked.options)]
    before, after = _inside(_commands(settings, point))
    return " ".join(
        [engine, "run", "--rm", *mounts, *values, *before, *options, shell_quote(exact), after]
    )


def _inside(commands: Sequence[str]) -> tuple[list[str], str]:
    """Options, and what is run. A setup and its command share a container, without the image's entry point."""
    if len(commands) == 1:
        return [], commands[0]
    # In there, the folder is another one.
    script = " && ".join(commands).replace('"$PWD"', '"$KARAT_ROOT"')
    root = ["-e", 'KARAT_ROOT="$PWD"'] if "$KARAT_ROOT" in script else []
    return [*root, "--entrypoint", "sh"], f"-c {shell_quote(script)}"


def _without_tag(image: str) -> str:
    head, _, tail = image.rpartition("/")
    name = tail.partition("@")[0].partition(":")[0]
    return f"{head}/{name}" if head else name


def _mount(mount: str) -> str:
    """`"$PWD":/dir`: engines want whole paths."""
    host, _, rest = mount.partition(":")
    if host.startswith("/"):
        return shell_quote(mount)
    inner = "" if host in {".", "./"} else shell_quote("/" + host.removeprefix("./"))
    return f'"$PWD"{inner}:{shell_quote(rest)}'


def _checkout(settings: HuntSettings, point: Point, identity: Mapping[str, str]) -> str:  # noqa: ARG001 - one signature
    """Fresh clones beside one another, at the point's commits, built, and the probe."""
    asked = settings.commits or settings.checkouts
    moved = [r for r in settings.repositories if r.name in point.parts]
    if asked.container or settings.checkouts.container or not moved:
        return ""
    steps = [step for one in moved for step in _cloned(one, point.parts[one.name])]
    # Builds and probes start in the repository; of several, in the folder that holds them.
    steps += [f"cd {shell_quote(moved[0].folder or moved[0].name)}"] if len(moved) == 1 else []
    build = " ".join(shell_quote(word) for word in split_command(asked.build))
    probe = [
        step.replace('"$PWD"', '"$root"')
        for step in _steps(_variables(settings), _commands(settings, point))
    ]
    chain = ['cd "$(mktemp -d)"', *steps, *([build] if build else []), *probe]
    return f"(root=$PWD; {' && '.join(chain)})"


def _cloned(one: RepositorySettings, commit: str) -> list[str]:
    """A fresh clone of a repository, at a commit."""
    folder = shell_quote(one.folder or one.name)
    away = "://" in one.url or one.url.startswith(("/", "git@"))
    source = shell_quote(one.url) if away else f'"$root"/{shell_quote(one.url)}'
    within = f"git -C {folder} submodule -q update --init --recursive"
    return [
        f"git clone -q {source} {folder}",
        f"git -C {folder} checkout -q {commit}",
        *([within] if one.submodules else []),
    ]


def _package(settings: HuntSettings, point: Point, identity: Mapping[str, str]) -> str:
    asked = settings.packages
    if asked is None:
        return ""
    wanted = [f"{asked.name}=={point.parts.get(asked.name, point.id)}", *asked.requires]
    if asked.at_its_time:
        wanted += _beside(asked.name, identity)
    python = ["--python", shell_quote(asked.python)] if asked.python else []
    index = (
        ["--default-index", shell_quote(asked.index)]
        if asked.index and "@" not in asked.index
        else []
    )
    withs = [word for name in wanted for word in ("--with", shell_quote(name))]
    commands = _commands(settings, point)
    run = commands[0] if len(commands) == 1 else f"sh -c {shell_quote(' && '.join(commands))}"
    uv = ["uv", "run", "--no-project", "--isolated", *python, *index, *withs, "--", run]
    return " ".join([*_variables(settings), *uv])


def _beside(name: str, identity: Mapping[str, str]) -> list[str]:
    """The dependencies that were there, each in its version: the index has newer ones by now."""
    found = {
        key.removeprefix("package."): v for key, v in identity.items() if key.startswith("package.")
    }
    return [f"{other}=={version}" for other, version in found.items() if other != name]


def _value(settings: HuntSettings, point: Point, identity: Mapping[str, str]) -> str:  # noqa: ARG001 - one signature
    value = point.parts.get("value", point.id)
    variables = [f"KARAT_VALUE={shell_quote(value)}", *_variables(settings)]
    steps = _steps(variables, _commands(settings, point))
    return steps[0] if len(steps) == 1 else f"({' && '.join(steps)})"
