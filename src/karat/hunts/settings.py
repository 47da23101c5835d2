"""Settings: what hunt.toml may say; `hunts.hunt_toml` reads and checks it. Unknown keys are errors, with a suggestion.

Durations are texts with a unit (`90 s`, `10 min`, `1 h`, `1 day`, `1 week`) or numbers of seconds; sizes are texts (`50 GB`).
Commands are lists of words, or a text that is split as a shell would, without ever being handed to one. A day without a
time is its midnight, and a time without a zone is UTC.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from karat.changepoints.series import Better
from karat.engines.job import MOST, EngineSettings, HowMany
from karat.findings import UsageError, suggest
from karat.system.secrets import SHORTEST, is_secret_name

Words = str | tuple[str, ...]
Duration = str | int | float
AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1, le=MOST)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, le=1e300)]
SOURCES = ("regex", "json", "junit", "exit_code", "seconds", "instructions", "golden")
TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
EDIT = "edit hunt.toml"
GROUP = "karat.timelines"
BUILT_IN = ("containers", "checkouts", "commits", "packages", "values", "split")
COMMIT = re.compile(r"[0-9a-f]{7,64}")  # A commit's id, also a short one.
ENVIRONMENT = "environment"  # The part of a split's points that is old or new packages.
REBUILD = "rebuild"  # The part of a point that says which of its builds is meant.
IMAGE = "image"  # The part of a point that names the container everything is built in.


class MetricSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One [[probe.metrics]]: exactly one of regex, json, junit, exit_code, seconds, instructions and golden says where its value is."""

    name: str
    regex: str | None = None  # On the output; the first group is the value. `which` says which match.
    which: Literal["first", "last", "mean", "median", "min", "max"] = "last"
    json: str | None = None  # A path into a JSON document: `results[0].loss`.
    junit: str | None = None
    """Test case glob of a JUnit report: `seconds` of the matching tests, or with `value = "failed"` how many failed."""
    value: Literal["seconds", "failed", "passed"] = "seconds"
    exit_code: bool = False  # 0 is good, anything else is bad: a binary metric; a failing run is then no crash.
    seconds: bool = False  # How long the command took.
    instructions: Literal["perf", "cachegrind"] | None = None  # How many it executed, as that tool counts them.
    of_repeats: Literal["median", "min"] | None = None  # What counts of an attempt's repeats; None: of times min.
    golden: str | None = None
    """A golden's path; the run's result (`file`) is compared with it as `karat check` does: 0 within, 1 outside."""
    file: str = ""  # Where the value is read: a file in $KARAT_OUT or the command's folder; empty: the output.
    better: Better | None = None
    unit: str = ""
    threshold: float | None = None

    @property
    def sources(self) -> list[str]:
        """The keys that say where its value is: exactly one, once hunt.toml has been checked."""
        return [key for key in SOURCES if getattr(self, key) not in {None, False}]

    @property
    def is_binary(self) -> bool:
        """Whether it can only be 0 or 1."""
        return self.exit_code or self.golden is not None

    @property
    def is_lowest(self) -> bool:
        """Whether the lowest of several repeats counts: of times, which other work on the machine can only make longer."""
        timed = self.unit in TIME_UNITS or self.seconds or (self.junit is not None and self.value == "seconds")
        return self.of_repeats == "min" or (not self.of_repeats and timed and self.direction in {"lower", None})

    @property
    def reads_failures(self) -> bool:
        """Whether a failing run is a measurement, and no crash."""
        return self.exit_code or self.junit is not None

    @property
    def direction(self) -> Better | None:
        """Which direction is better: as hunt.toml says, or as nobody could doubt; else None."""
        if self.better is not None:
            return self.better
        if self.junit is not None and self.value == "passed":
            return "higher"
        lower = self.is_binary or self.seconds or self.instructions or self.junit is not None
        return "lower" if lower else None


class CrashSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[probe.crash]: a crash that is hunted itself."""

    kind: Literal["any", "exception", "signal", "hang"] = "any"
    pattern: str = ""  # Of the signature (`XlaRuntimeError: INTERNAL.*`), or of the output.
    signal: str = ""  # `SIGSEGV`; empty: any.


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[probe]: what is run at each point, and what is read off it."""

    command: Words
    metrics: tuple[MetricSettings, ...] = ()
    crash: CrashSettings | None = None
    setup: Words = ()  # Run once per attempt before the command, unmeasured; a failure means broken, not crash.
    timeout: Duration = "30 min"
    repeats: AtLeastOne = 1  # Runs of the command per attempt.
    warmups: HowMany = 0
    identify: Words = ()
    """Prints what is really under test, in lines of `name=value`. `commit.NAME` tells of repositories."""
    packages: tuple[str, ...] = ()  # Python distributions whose versions are part of the identity.
    hash_files: tuple[str, ...] = ()  # Globs of built files whose hash is part of the identity.
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    env_pass: tuple[str, ...] = ()
    """Variables that code under test sees although they are secrets; see `karat.system.secrets`."""
    skip_exit_codes: tuple[int, ...] = (125,)
    """Exit codes that mean: cannot be tested (broken), as for `git bisect run`."""


class ContainerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[containers]: one image per date."""

    image: str  # With `{date:%Y-%m-%d}`.
    start: dt.datetime | None = None
    end: dt.datetime | None = None
    step: Duration = "1 day"
    engine: Literal["docker", "podman", "pyxis"] | None = None
    mounts: tuple[str, ...] = ()  # `HOST:CONTAINER[:ro]`; HOST is relative to hunt.toml's folder.
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    gpus: str | None = None  # `all`, a number, or `device=0,1`; None: none.
    options: tuple[str, ...] = ()  # More words for `run`, such as --shm-size=1g.
    ahead: HowMany = 2  # How many images may be pulled ahead.
    cache: str = ""  # Images of this hunt may take so much; the oldest go first. Empty: no limit, nothing is removed.
    insecure: bool = False  # Ask the registry over plain HTTP; on loopback that is the default.


class RepositorySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One [[repositories]]."""

    name: str
    url: str  # What git can clone: a URL, or a path relative to hunt.toml's folder.
    branch: str = "main"
    submodules: bool = False

    @property
    def commit_variable(self) -> str:
        """The environment variable that holds its commit: `KARAT_COMMIT_XLA`."""
        return f"KARAT_COMMIT_{re.sub(r'[^A-Za-z0-9]', '_', self.name).upper()}"


class CheckoutSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[checkouts] and [commits]: how repositories are brought to a point and built."""

    start: dt.datetime | None = None
    end: dt.datetime | None = None
    step: Duration = "1 h"
    good: Mapping[str, str] = msgspec.field(default_factory=dict)
    bad: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Commits: repository → revision, for a stage that has no coarser one before it."""
    history: Literal["first-parent", "all"] = "first-parent"
    build: Words = ()
    build_timeout: Duration = "2 h"
    clean: bool = False  # Removes what is not tracked before each build; by default builds are incremental.
    rebuild: AtLeastOne = 1
    """So many builds of a point in turn, each from scratch; the build command finds its number (0, 1, …) in $KARAT_REBUILD."""
    container: str = ""
    """An image; one container of it is kept per slot, and everything is run inside. `last good`: the coarser stage's."""


class PackageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[packages]: released versions of a Python package."""

    name: str
    start: str = ""
    end: str = ""  # Versions, inclusive.
    python: str = ""  # An interpreter or version for uv; by default the one karat runs on.
    requires: tuple[str, ...] = ()  # What else is installed, with it: `numpy<2`, `pytest`.
    prereleases: bool = False
    index: str = ""  # Another package index (its simple API); by default what uv and pip are configured for.


class SplitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[split]: two environments; the code's two ends are `good` and `bad` of [commits]."""

    old: str | Mapping[str, str]
    new: str | Mapping[str, str]  # Lock files (see `timelines.locks`), or package → version.
    python: str = ""
    index: str = ""  # Both as in [packages].
    requires: tuple[str, ...] = ()  # What else is installed on both sides: `pytest`.
    no_deps: bool = False  # Installs what is listed and nothing else, also where it does not fit together.


class ValueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[values]: any list of texts; the command finds its own in `{value}` and $KARAT_VALUE."""

    list: tuple[str, ...]


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[search]."""

    strategy: Literal["adaptive", "sweep", "bisect"] = "adaptive"
    grid: HowMany = 0
    """Adaptive, at the first stage: dips of at least so many points are surely looked for; 0: chosen by the length."""
    min_dip: HowMany = 0  # Adaptive, at the first stage: whatever lasts so many points is found …
    min_dip_sure: Annotated[float, Meta(gt=0, le=1)] = 0.95  # … with this probability; the grid is chosen from both.
    confidence: Annotated[float, Meta(gt=0.5, lt=1)] = 0.99
    smallest: Annotated[float, Meta(ge=0, lt=1)] = 0.01  # The smallest relative change that is worth finding.
    max_runs: Annotated[int, Meta(ge=0)] = 0
    max_time: Duration = 0
    max_cost: Amount = 0  # Budgets of the whole hunt; 0: no limit. What costs how much is in [cost].
    runs_per_point: AtLeastOne = 3
    """A stage takes no more runs than a sweep with so many per point, confirming included."""
    good: str = ""
    bad: str = ""  # Bisect: the known points.
    confirmations: HowMany = 2  # How often the culprit and its parent are run again at the end, at least.
    attribution: bool = True
    priors: bool = True  # Whether what commits touch says where to look first; nothing is excluded by it.


class CostSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[cost]: what max_cost counts, in any unit: dollars, credits, seconds."""

    run: Amount = 0
    build: Amount = 0  # Of a run that had to build, or to install packages.
    pull: Amount = 0  # Of the first run with an image.
    gpu_second: Amount = 0  # Of each second of a run, times [engine] gpus (at least one).


class HuntSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of hunt.toml."""

    name: str = ""
    stages: tuple[str, ...]
    """`containers by day`, `checkouts by hour`, `commits`, `packages`, `values`, `split`; coarse to fine."""
    probe: ProbeSettings
    containers: ContainerSettings | None = None
    repositories: tuple[RepositorySettings, ...] = ()
    checkouts: CheckoutSettings = CheckoutSettings()
    commits: CheckoutSettings | None = None  # By default as checkouts.
    packages: PackageSettings | None = None
    values: ValueSettings | None = None
    split: SplitSettings | None = None
    search: SearchSettings = SearchSettings()
    cost: CostSettings = CostSettings()
    engine: EngineSettings = EngineSettings()
    work: str = ".karat/hunt"  # Kept clones, builds, environments and the journal, relative to hunt.toml's folder.
    skip: tuple[str, ...] = ()  # Points, or ranges of them (`2023-07-11..2023-07-16`), that are not tried.
    options: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """For timelines of third parties: timeline → key → text."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One word of `stages`, understood: `checkouts by hour` is checkouts with step 3600."""

    timeline: str
    step: float | None = None  # Seconds; None: the timeline's own setting.
    text: str


_TIME_UNITS = {
    "ms": 0.001,
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("m", "min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3600),
    **dict.fromkeys(("d", "day"), 86400),
    **dict.fromkeys(("w", "week"), 604800),
}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def mistake(message: str) -> UsageError:
    return UsageError(message, next_command=EDIT)


def parse_duration(value: Duration) -> float:
    """Seconds of `90 s`, `10 min`, `1 h 30 min`, `1 day`, or of a number of seconds."""
    found = _seconds(value) if isinstance(value, str) else value
    # What is beyond a lifetime is a mistake, and clocks cannot count it. NaN is not within either.
    if found is None or not 0 <= found <= 100 * 366 * 86400:
        raise mistake(f"expected a duration such as '90 s', '10 min', '1 h' or '1 day', found {value!r}")
    return float(found)


def parse_step(text: str) -> float | None:
    """Seconds of the step after `by`: `day`, `2 hours`, `30 min`; None where it is none."""
    return _seconds(text if text[:1].isdigit() else f"1 {text}") or None


def _seconds(text: str) -> float | None:
    """The sum of the parts of a text; None unless all of it is understood."""
    if re.fullmatch(rf"({_TIME.pattern})+", text.strip(), re.IGNORECASE) is None:
        return None
    parts = [(float(number), unit.lower()) for number, unit in _TIME.findall(text)]
    sizes = [_TIME_UNITS.get(unit.removesuffix("s") if len(unit) > 2 else unit) for _, unit in parts]
    return None if None in sizes else sum(n * size for (n, _), size in zip(parts, sizes, strict=True) if size)


def split_command(words: Words) -> tuple[str, ...]:
    """The words of a command; what a shell does beyond quoting (`|`, `$X`, `>`) is not done."""
    try:
        found = tuple(shlex.split(words)) if isinstance(words, str) else words
    except ValueError as error:
        raise mistake(f"expected a command with closed quotes, found {words!r}") from error
    if found and not found[0].strip():
        raise mistake(f"expected a command that begins with a program, found {words!r}")
    return found


def stages(settings: HuntSettings) -> tuple[Stage, ...]:
    if not settings.stages:
        raise mistake(f"stages: expected at least one of {', '.join(BUILT_IN)}, found none")
    found = []
    for text in settings.stages:
        timeline, *words = text.split() or [""]
        if timeline not in BUILT_IN:
            from importlib.metadata import entry_points

            theirs = sorted({e.name for e in entry_points(group=GROUP)} - set(BUILT_IN))
            known = (*BUILT_IN, *theirs)
            if timeline not in theirs:
                said = f"no timeline is called {timeline!r}{suggest(timeline, known)} (known: {', '.join(known)})"
                raise mistake(f"stages: {said}")
        step = None
        if words:
            step = parse_step(" ".join(words[1:])) if words[0] == "by" else None
            if step is None:
                raise mistake(f"stages: expected {timeline!r} or '{timeline} by day', found {text!r}")
            # `commits by day` would be checkouts.
            if timeline in BUILT_IN and timeline not in {"containers", "checkouts"}:
                raise mistake(f"stages: expected {timeline!r} without a step, found {text!r}")
        elif timeline == "containers" and settings.containers is not None:
            step = parse_duration(settings.containers.step)
        elif timeline == "checkouts":
            step = parse_duration(settings.checkouts.step)
        found.append(Stage(timeline=timeline, step=step, text=text))
    return tuple(found)


def check_repositories(repositories: Sequence[RepositorySettings]) -> None:
    """Raise for names that cannot be told apart, or that are no folder's."""
    for each in repositories:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", each.name) or each.name == IMAGE:
            letters = f"letters, digits, '.', '_', '+' and '-' (and not {IMAGE!r})"
            raise mistake(f"repositories: expected a name of {letters}, found {each.name!r}")
    told = {"name": [one.name for one in repositories], "variable": [one.commit_variable for one in repositories]}
    for what, words in told.items():
        for word, count in Counter(words).items():
            if count > 1:
                raise mistake(f"repositories: expected each {what} once, found {word!r} {count} times")


HARMLESS = ("engine", "search", "cost", "name")
"""Tables and keys that change what is run next, and nothing about what was measured already."""
# What `https://user:token@host/x` has before its host.
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
NOT_KEPT = "(not kept)"  # Stands for the value of an environment variable.
# A variable that is set on a command line.
_ASSIGNMENT = re.compile(rf"\b([A-Z_][A-Z0-9_]*)=[^\s'\"]{{{SHORTEST},}}")


def settings_json(settings: HuntSettings) -> str:
    """The settings as JSON: of environment variables the names only, of URLs no user and no password, of secrets nothing."""
    return msgspec.json.encode(_without_secrets(msgspec.to_builtins(settings)), order="sorted").decode()


def _without_secrets(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        if name == "env":
            return dict.fromkeys(value, NOT_KEPT)
        kept = {key: _without_secrets(inner, key) for key, inner in value.items()}
        # What a timeline of others calls its token.
        hidden = {k for k, text in kept.items() if isinstance(text, str) and is_secret_name(k)}
        return {**kept, **dict.fromkeys(hidden, NOT_KEPT)}
    if isinstance(value, list | tuple):
        return [_without_secrets(inner) for inner in value]
    return _USERINFO.sub("", without_assignments(value)) if isinstance(value, str) else value


def without_assignments(text: str) -> str:
    """`env API_KEY=abcdefgh python x.py` as `env API_KEY=$API_KEY python x.py`."""
    return _ASSIGNMENT.sub(lambda found: f"{found[1]}=${found[1]}" if is_secret_name(found[1]) else found[0], text)


def environment_values(settings: HuntSettings) -> dict[str, str]:
    containers = settings.containers.env if settings.containers is not None else {}
    return {**containers, **settings.probe.env}


def redact(word: str, environment: Mapping[str, str]) -> str:
    """A word of a command without values of the environment: `-e TOKEN=abc` is `-e TOKEN=$TOKEN`."""
    for name, value in environment.items():
        word = word.replace(f"{name}={value}", f"{name}=${name}")
        if len(value) >= SHORTEST:
            word = word.replace(value, f"${name}")
    return _USERINFO.sub("", without_assignments(word))


def changed_settings(old: str, new: str) -> tuple[str, ...]:
    """Keys whose values differ: `probe.command`, `containers.end`; those that are harmless are left out."""
    before, after = msgspec.json.decode(old), msgspec.json.decode(new)
    return tuple(path for path in _differing(before, after) if path.split(".")[0] not in HARMLESS)


def _differing(old: Any, new: Any, path: str = "") -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if key not in old and not new[key]:  # an older version did not know it
                continue
            yield from _differing(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    else:
        yield path
