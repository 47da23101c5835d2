"""Installed versions: what tells which distributions a Python has, as lines of an identity. It runs on that Python, not here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from karat.engines.job import Command, Job, Resources
from karat.hunts import settings as durations, settings as sizes
from karat.hunts.model import Point
from karat.hunts.settings import EngineSettings, HuntSettings, ProbeSettings, Words, split_command
from karat.hunts.timelines.timeline import Timeline, Workspace

# One line, so that whoever is shown the command can paste it. The first of a name is the one that is imported.
_PRINT = (
    "import re, sys; from importlib import metadata;"
    " plain = lambda name: re.sub('[-_.]+', '-', name or '').lower();"
    " there = {plain(d.metadata['Name']): d.version for d in reversed(list(metadata.distributions()))};"
    " print(*('package.%s=%s' % (n, there.get(plain(n), 'not installed')) for n in sys.argv[1:] or sorted(there)), sep=chr(10))"
)


def print_versions(*names: str) -> tuple[str, ...]:
    """What a Python is given to print `package.NAME=VERSION` of these distributions; without names, of all."""
    return ("-c", _PRINT, *names)


# DOC-HERE jobs: Jobs of a hunt: from a point to the commands that put it under test.
#
# In: a timeline, one of its points, the probe. Out: a `Job`: the timeline's commands that bring the point there, setup, what
# tells its identity, warm-ups, the measured runs. Nothing runs here.

SETUP, IDENTIFY, PACKAGES = "setup", "identify", "packages"


def job_for(
    timeline: Timeline,
    point: Point,
    settings: HuntSettings,
    *,
    key: str,
    known: Sequence[str] = (),
    place: Workspace | None = None,
) -> Job:
    """Everything that is run at a point, in order."""
    probe = settings.probe
    env = _environment(timeline, point, probe, place)
    own = (*_before(probe, env), *_runs(probe, env))
    return Job(
        key=key,
        commands=(
            *timeline.prepare(point),
            *(timeline.command(point, command) for command in own),
        ),
        resources=_resources(settings.engine),
        collect=_collected(probe),
        hash_files=probe.hash_files,
        known=tuple(known),
        identity=dict(timeline.identity(point)),
    )


def run_folder(probe: ProbeSettings, number: int) -> str:
    """Where run `number` (0, 1, …) leaves its files, below the job's own folder; empty: in it."""
    return "" if probe.repeats == 1 else f"run-{number + 1}"


def reads_failures(probe: ProbeSettings) -> bool:
    """Whether a run that fails is a measurement all the same: a metric reads its exit code or its report."""
    return any(metric.exit_code or metric.junit is not None for metric in probe.metrics)


def _environment(
    timeline: Timeline, point: Point, probe: ProbeSettings, place: Workspace | None
) -> dict[str, str]:
    """What a probe may want to know; what hunt.toml says comes last, and wins."""
    return {
        "KARAT_POINT": point.id,
        "KARAT_STAGE": timeline.name,
        "KARAT_OUT": "@OUT@",
        **({"KARAT_ROOT": str(place.root)} if place is not None else {}),
        **probe.env,
    }


def _before(probe: ProbeSettings, env: Mapping[str, str]) -> Iterator[Command]:
    """Setup, and what tells the identity."""
    timeout = durations.parse_duration(probe.timeout)
    setup, identify = _words(probe.setup, env), _words(probe.identify, env)
    if setup:
        yield Command(role="prepare", name=SETUP, argv=setup, env=env, timeout=timeout)
    if identify:
        yield Command(role="identify", name=IDENTIFY, argv=identify, env=env, timeout=timeout)
    if probe.packages:
        argv = ("python3", *print_versions(*probe.packages))
        yield Command(role="identify", name=PACKAGES, argv=argv, env=env, timeout=timeout)


def _runs(probe: ProbeSettings, env: Mapping[str, str]) -> Iterator[Command]:
    """Warm-ups, then the measured runs."""
    argv, timeout = _words(probe.command, env), durations.parse_duration(probe.timeout)
    for number in range(probe.warmups):
        name = f"warm-up {number + 1}"
        yield Command(role="warmup", name=name, argv=argv, env=env, timeout=timeout)
    for number in range(probe.repeats):
        # The runner makes the folder.
        folder = run_folder(probe, number)
        yield Command(
            role="measure",
            name=f"run {number + 1}",
            argv=argv,
            env={**env, "KARAT_OUT": f"@OUT@/{folder}"} if folder else env,
            timeout=timeout,
            # Otherwise the first failure is the answer, and more runs of it would cost time for nothing.
            may_fail=reads_failures(probe),
        )


def _words(words: Words, env: Mapping[str, str]) -> tuple[str, ...]:
    """The command's words, with `{point}` and `{root}` filled in; other braces are the command's own."""
    named = {"{point}": env["KARAT_POINT"], "{root}": env.get("KARAT_ROOT", "{root}")}
    return tuple(fill_in(word, named) for word in split_command(words))


def fill_in(word: str, named: Mapping[str, str]) -> str:
    """A word with names in braces replaced; what replaces one is not looked at again."""
    pattern = re.compile("|".join(map(re.escape, named)))
    return pattern.sub(lambda found: named[found[0]], word)


def _resources(engine: EngineSettings) -> Resources:
    return Resources(
        cores=engine.cores or 1,
        gpus=engine.gpus,
        memory=sizes.parse_size(engine.memory),
        custom=engine.resources,
    )


def _collected(probe: ProbeSettings) -> tuple[str, ...]:
    """Globs of what must come back: what metrics are read from, and what is to be kept."""
    wanted = dict.fromkeys((*(m.file for m in probe.metrics if m.file), *probe.files))
    folders = dict.fromkeys(run_folder(probe, number) for number in range(probe.repeats))
    in_folders = [f"{folder}/{glob}" for folder in folders if folder for glob in wanted]
    return (*in_folders, *wanted)
