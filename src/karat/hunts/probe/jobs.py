"""Jobs: from a point to the commands that put it under test.

In: a timeline, one of its points, the probe. Out: a `Job`: the timeline's commands that bring the point there, setup, what
tells its identity, warm-ups, the measured runs. Nothing runs here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from karat.engines.job import Job, JobCommand
from karat.hunts.model import Point
from karat.hunts.probe.metrics import COUNTS
from karat.hunts.settings import HuntSettings, ProbeSettings, parse_duration, split_command
from karat.hunts.timelines.timeline import Timeline, Workspace

# Runs on the Python under test, not here. One line, so that whoever is shown the command can paste it. The first of a name
# is the one that is imported.
_PRINT = (
    "import re, sys; from importlib import metadata;"
    " plain = lambda name: re.sub('[-_.]+', '-', name or '').lower();"
    " there = {plain(d.metadata['Name']): d.version for d in reversed(list(metadata.distributions()))};"
    " print(*('package.%s=%s' % (n, there.get(plain(n), 'not installed')) for n in sys.argv[1:] or sorted(there)), sep=chr(10))"
)

# What runs a command and writes how many instructions it and its children executed into OUT.
_CACHEGRIND = "--tool=cachegrind --cache-sim=no --trace-children=yes --cachegrind-out-file=/dev/null --log-file=OUT.%p"
COUNTERS = {"perf": "perf stat -x , -e instructions:u -o OUT --", "cachegrind": f"valgrind {_CACHEGRIND} --"}


def print_versions(*names: str) -> tuple[str, ...]:
    """Arguments with which a Python prints `package.NAME=VERSION` of these distributions; without names, of all."""
    return ("-c", _PRINT, *names)


def job_for(  # noqa: PLR0913 - what a job is made of
    timeline: Timeline,
    point: Point,
    settings: HuntSettings,
    *,
    key: str,
    place: Workspace,
    known: Sequence[str] = (),
    beside: str = "",
) -> Job:
    probe = settings.probe
    # What hunt.toml says comes last, and wins.
    own = {"KARAT_POINT": point.id, "KARAT_STAGE": timeline.name, "KARAT_OUT": "@OUT@", "KARAT_ROOT": str(place.root)}
    env = {**own, **probe.env}
    counted = [f"{COUNTS}*"] if any(m.instructions for m in probe.metrics) else []
    wanted = dict.fromkeys((*(m.file for m in probe.metrics if m.file), *counted))
    folders = dict.fromkeys(run_folder(probe, number) for number in range(probe.repeats))
    return Job(
        key=key,
        commands=(*timeline.prepare(point), *(timeline.command(point, command) for command in _commands(probe, env))),
        resources=settings.engine.of_each,
        collect=(*(f"{folder}/{glob}" for folder in folders if folder for glob in wanted), *wanted),
        hash_files=probe.hash_files,
        known=tuple(known),
        identity=dict(timeline.identity(point)),
        beside=beside,
        passed=probe.env_pass,
    )


def run_folder(probe: ProbeSettings, number: int) -> str:
    """Where run `number` (0, 1, …) leaves its files, below the job's own folder; empty: in it."""
    return "" if probe.repeats == 1 else f"run-{number + 1}"


def _commands(probe: ProbeSettings, env: Mapping[str, str]) -> Iterator[JobCommand]:
    """Setup, what tells the identity, warm-ups, then the measured runs."""
    timeout = parse_duration(probe.timeout)
    # `{point}` and `{root}` are filled in; other braces are the command's own.
    named = {"{point}": env["KARAT_POINT"], "{root}": env["KARAT_ROOT"]}
    asked = (probe.setup, probe.identify, probe.command)
    setup, identify, argv = (tuple(fill_in(word, named) for word in split_command(words)) for words in asked)
    made = partial(JobCommand, timeout=timeout)
    if setup:
        yield made(role="prepare", name="setup", argv=setup, env=env)
    if identify:
        yield made(role="identify", name="identify", argv=identify, env=env)
    if probe.packages:
        yield made(role="identify", name="packages", argv=("python3", *print_versions(*probe.packages)), env=env)
    for number in range(probe.warmups):
        yield made(role="warmup", name=f"warm-up {number + 1}", argv=argv, env=env)
    # If failures are not read, the first one is the answer, and more runs of it would cost time for nothing.
    may_fail = any(metric.reads_failures for metric in probe.metrics)
    for number in range(probe.repeats):
        folder = run_folder(probe, number)  # which the runner makes
        mine = {**env, "KARAT_OUT": f"@OUT@/{folder}"} if folder else env
        out = f"{mine['KARAT_OUT']}/{COUNTS}"
        counter = next((COUNTERS[m.instructions] for m in probe.metrics if m.instructions), "")
        words = (*(word.replace("OUT", out) for word in counter.split()), *argv)
        yield made(role="measure", name=f"run {number + 1}", argv=words, env=mine, may_fail=may_fail)


def fill_in(word: str, named: Mapping[str, str]) -> str:
    """A word with names in braces replaced; what replaces one is not looked at again."""
    return re.sub("|".join(map(re.escape, named)), lambda found: named[found[0]], word)
