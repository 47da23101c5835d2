"""A script that puts a point under test again, by hand, without karat. Pure.

Where a point needs more (a build inside a kept container), there is none. It can be pasted whatever a terminal and a report
do to what cannot be printed; what may be a secret is taken from the reader's own environment: it goes into issues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from karat.hunts.model import Point
from karat.hunts.probe.jobs import fill_in
from karat.hunts.settings import NOT_KEPT, HuntSettings, split_command
from karat.hunts.timelines.container_engine import ContainerEngine, Kind
from karat.system.command import quoted
from karat.system.secrets import is_secret_name

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_quoted = partial(quoted, lines=True)


def reproduce_script(
    settings: HuntSettings, timeline: str, point: Point, identity: Mapping[str, str], *, engine: Kind = "docker"
) -> str:
    """The script, to be run in hunt.toml's folder; empty where there is none. `engine` runs containers."""
    steps = _steps_of(settings, timeline, point, identity, engine)
    head = f"#!/bin/bash\n# {' '.join(point.label.split())}, as karat hunt tried it; run it in the folder of the hunt.\nset -e\n"
    return head + "\n".join(steps) + "\n" if steps else ""


def _steps_of(
    settings: HuntSettings, timeline: str, point: Point, identity: Mapping[str, str], engine: Kind
) -> list[str]:
    # What is run at a point, setup first, with what karat would put into it.
    named = {"{point}": point.id, "{value}": point.parts.get("value", "{value}")}
    asked = (split_command(settings.probe.setup), split_command(settings.probe.command))
    commands = [" ".join(_word(word, named) for word in words) for words in asked if words]
    if timeline == "containers":
        return _container(settings, point, identity, commands, engine)
    out = ['KARAT_OUT="$(mktemp -d)"'] if _leaves_files(settings) else []
    variables = [*out, *_assignments(settings.probe.env)]
    if timeline in {"checkouts", "commits", "split"}:
        return _checkout(settings, point, identity, _steps(variables, commands))
    if timeline == "packages":
        return _package(settings, point, variables, commands)
    if timeline == "values":
        value = f"KARAT_VALUE={_quoted(point.parts.get('value', point.id))}"
        return _steps([value, *variables], commands)
    return []


def _word(word: str, named: Mapping[str, str]) -> str:
    """A word for a shell; `{root}` is the folder it is pasted in."""
    if "{root}" in word:
        return '"$PWD"'.join(_word(piece, named) if piece else "" for piece in word.split("{root}"))
    return _quoted(fill_in(word, named))


def _leaves_files(settings: HuntSettings) -> bool:
    return any(metric.file for metric in settings.probe.metrics)


def _assignments(env: Mapping[str, str]) -> list[str]:
    named = {name: text for name, text in env.items() if _VARIABLE.fullmatch(name)}
    hidden = {name for name, text in named.items() if text == NOT_KEPT or is_secret_name(name)}
    return [f'{n}="${{{n}:?}}"' if n in hidden else f"{n}={_quoted(text)}" for n, text in named.items()]


def _steps(variables: Sequence[str], commands: Sequence[str]) -> list[str]:
    """Commands, all with the same variables."""
    if len(commands) == 1:
        return [" ".join([*variables, *commands])]
    return [*([f"export {' '.join(variables)}"] if variables else []), *commands]


def _container(
    settings: HuntSettings, point: Point, identity: Mapping[str, str], commands: Sequence[str], found: Kind
) -> list[str]:
    asked, image = settings.containers, point.parts.get("image", "")
    if asked is None or not image:
        return []
    # Whoever has no Slurm at hand has one of the others.
    engine: Kind = found if asked.engine in {None, "pyxis"} else asked.engine
    digest = identity.get("image.digest", "")
    if digest.startswith("sha256:"):
        # Not by its tag, which may have moved since.
        head, slash, tail = image.rpartition("/")
        image = f"{head}{slash}{tail.partition('@')[0].partition(':')[0]}@{digest}"
    words = [_quoted(engine), "run", "--rm"]
    for mount in asked.mounts:
        # Engines want whole paths.
        host, _, rest = mount.partition(":")
        inner = "" if host in {".", "./"} else _quoted("/" + host.removeprefix("./"))
        words += ["-v", _quoted(mount) if host.startswith("/") else f'"$PWD"{inner}:{_quoted(rest)}']
    if _leaves_files(settings):
        words += ["-v", '"$(mktemp -d)":/karat-out', "-e", "KARAT_OUT=/karat-out"]
    for assignment in _assignments({**asked.env, **settings.probe.env}):
        words += ["-e", assignment]
    words += [word for name in settings.probe.env_pass for word in ("-e", _quoted(name))]
    run = commands[0]
    if len(commands) > 1:
        # They share a container, without the image's entry point; in there, the folder is another one.
        script = " && ".join(commands).replace('"$PWD"', '"$KARAT_ROOT"')
        words += ["-e", 'KARAT_ROOT="$PWD"'] if "$KARAT_ROOT" in script else []
        words += ["--entrypoint", "sh"]
        run = f"-c {_quoted(script)}"
    gpus = ContainerEngine(name=engine, program=engine).gpus(asked.gpus)
    return [" ".join([*words, *map(_quoted, (*gpus, *asked.options, image)), run])]


def _checkout(settings: HuntSettings, point: Point, identity: Mapping[str, str], probe: Sequence[str]) -> list[str]:
    """Fresh clones beside one another, at the point's commits, built, and the probe; of a split, in its packages."""
    asked = settings.commits or settings.checkouts
    moved = [one for one in settings.repositories if one.name in point.parts]
    if asked.container or settings.checkouts.container or not moved:
        return []
    steps = ["root=$PWD", 'cd "$(mktemp -d)"']
    if settings.split is not None:
        there = {k.removeprefix("package."): v for k, v in identity.items() if k.startswith("package.")}
        if not there:
            return []
        python = f" --python {_quoted(settings.split.python)}" if settings.split.python else ""
        pins = " ".join(_quoted(f"{name}=={version}") for name, version in there.items())
        steps += [f"uv venv -q{python} packages", ". packages/bin/activate", f"uv pip install -q --no-deps {pins}"]
    for one in moved:
        folder, url = _quoted(one.name), _quoted(one.url)
        away = "://" in one.url or one.url.startswith(("/", "git@"))
        steps.append(f"git clone -q {url} {folder}" if away else f'git clone -q "$root"/{url} {folder}')
        steps.append(f"git -C {folder} checkout -q {_quoted(point.parts[one.name])}")
        if one.submodules:
            steps.append(f"git -C {folder} submodule -q update --init --recursive")
    # Builds and probes start in the repository; of several, in the folder that holds them.
    steps += [f"cd {folder}"] if len(moved) == 1 else []
    build = " ".join(map(_quoted, split_command(asked.build)))
    steps += [build] if build else []
    steps += [step.replace('"$PWD"', '"$root"') for step in probe]
    return steps


def _package(settings: HuntSettings, point: Point, variables: Sequence[str], commands: Sequence[str]) -> list[str]:
    asked = settings.packages
    if asked is None:
        return []
    wanted = [f"{asked.name}=={point.parts.get(asked.name, point.id)}", *asked.requires]
    words = [*variables, "uv", "run", "--no-project", "--isolated"]
    words += ["--python", _quoted(asked.python)] if asked.python else []
    # A login in the address stays where it is.
    if asked.index and "@" not in asked.index:
        words += ["--default-index", _quoted(asked.index)]
    words += [word for name in wanted for word in ("--with", _quoted(name))]
    run = commands[0] if len(commands) == 1 else f"sh -c {_quoted(' && '.join(commands))}"
    return [" ".join([*words, "--", run])]
