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
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from karat.changepoints.series import Better
from karat.findings import UsageError

Words = str | tuple[str, ...]
Duration = str | int | float
SOURCES = ("regex", "json", "junit", "exit_code", "seconds", "instructions", "golden")
TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
EDIT = "edit hunt.toml"
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
    repeats: int = 1  # Runs of the command per attempt.
    warmups: int = 0
    identify: Words = ()
    """Prints what is really under test: `name=value` lines, or a JSON object. `commit.NAME` tells of repositories."""
    packages: tuple[str, ...] = ()  # Python distributions whose versions are part of the identity.
    hash_files: tuple[str, ...] = ()  # Globs of built files whose hash is part of the identity.
    files: tuple[str, ...] = ()  # Globs of files to keep of each run, besides those metrics are read from.
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
    ahead: int = 2  # How many images may be pulled ahead.
    cache: str = ""  # Images of this hunt may take so much; the oldest go first. Empty: no limit, nothing is removed.
    insecure: bool = False  # Ask the registry over plain HTTP; on loopback that is the default.
    username: str = ""
    password_env: str = ""
    """The environment variable that holds the registry's password or token; else what the engine's login stored."""


class RepositorySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One [[repositories]]."""

    name: str
    url: str  # What git can clone: a URL, or a path relative to hunt.toml's folder.
    branch: str = "main"
    folder: str = ""  # Where in the work area it is checked out; by default its name.
    link: str = ""  # A page of a commit: `https://github.com/openxla/xla/commit/{commit}`; known for GitHub and GitLab.
    submodules: bool = False

    @property
    def path(self) -> PurePosixPath:
        """Where it is checked out, relative to the work area."""
        return PurePosixPath(self.folder or self.name)

    @property
    def commit_variable(self) -> str:
        """The environment variable that holds its commit: `KARAT_COMMIT_XLA`."""
        return f"KARAT_COMMIT_{re.sub(r'[^A-Za-z0-9]', '_', self.name).upper()}"


class CheckoutSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[checkouts] and [commits]: how repositories are brought to a point and built."""

    start: dt.datetime | None = None
    end: dt.datetime | None = None
    step: Duration = "1 h"
    margin: Duration = 0  # Looks so much further on both sides of what a coarser stage found.
    good: Mapping[str, str] = msgspec.field(default_factory=dict)
    bad: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Commits: repository → revision, for a stage that has no coarser one before it."""
    history: Literal["first-parent", "all"] = "first-parent"
    follow_merges: bool = True  # A merge that is found is looked into.
    build: Words = ()
    build_timeout: Duration = "2 h"
    clean: bool = False  # Removes what is not tracked before each build; by default builds are incremental.
    rebuild: int = 1
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
    yanked: bool = False
    index: str = ""  # Another package index (its simple API); by default what uv and pip are configured for.
    at_its_time: bool = False  # Dependencies as they were when the version was released, not as they are today.


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

    list: tuple[str, ...] = ()
    file: str = ""  # One value per line.


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[search]."""

    strategy: Literal["adaptive", "sweep", "bisect"] = "adaptive"
    grid: int = 0
    """Adaptive, at the first stage: dips of at least so many points are surely looked for; 0: chosen by the length."""
    min_dip: int = 0  # Adaptive, at the first stage: whatever lasts so many points is found …
    min_dip_sure: float = 0.95  # … with this probability; the grid is chosen from both.
    confidence: float = 0.99
    smallest: float = 0.01  # The smallest relative change that is worth finding.
    max_runs: int = 0
    max_time: Duration = 0
    max_cost: float = 0  # Budgets of the whole hunt; 0: no limit. What costs how much is in [cost].
    runs_per_point: int = 3  # A stage takes no more runs than a sweep with so many per point, confirming included.
    good: str = ""
    bad: str = ""  # Bisect: the known points.
    confirmations: int = 2  # How often the culprit and its parent are run again at the end, at least.
    attribution: bool = True
    priors: bool = True  # Whether what commits touch says where to look first; nothing is excluded by it.

    @property
    def thrifty(self) -> bool:
        """Whether every run counts, so that none should be a guess."""
        return bool(self.max_runs or self.max_cost)


class CostSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[cost]: what max_cost counts, in any unit: dollars, credits, seconds."""

    run: float = 0
    build: float = 0  # Of a run that had to build, or to install packages.
    pull: float = 0  # Of the first run with an image.
    gpu_second: float = 0  # Of each second of a run, times [engine] gpus (at least one).


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[engine]."""

    kind: Literal["local", "ray", "slurm"] = "local"
    slots: int = (
        0  # How many probes may run at once; 0: one, and as many as a cluster has room for (Slurm: 16 at most).
    )
    cores: float = 0  # Cores per probe, for itself; 0: not divided.
    gpus: float = 0  # GPUs per probe, for itself.
    memory: str = ""
    address: str = ""  # Ray's; by default RAY_ADDRESS.
    resources: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Per probe: custom resources of Ray, generic ones (GRES) of Slurm."""
    options: tuple[str, ...] = ()  # Slurm: more words for sbatch, such as --partition=gpu.
    retries: int = 3  # How often a point is tried elsewhere after its worker was lost.


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
_SIZE_UNITS = {"": 1, "B": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("KMGT", 1)
    for ending, base in (("B", 1000), ("IB", 1024))
}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def mistake(message: str) -> UsageError:
    """An error that is mended by editing hunt.toml."""
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
    total, place = 0.0, 0
    stripped = text.strip()
    while place < len(stripped):
        part = _TIME.match(stripped, place)
        if part is None:
            return None
        unit = part[2].lower()
        size = _TIME_UNITS.get(unit.removesuffix("s") if len(unit) > 2 else unit)
        if size is None:
            return None
        total += float(part[1]) * size
        place = part.end()
    return total if stripped else None


def parse_size(text: str) -> int:
    """Bytes of `50 GB`, `512 MiB` or `1000`; an empty text is 0."""
    if not text.strip():
        return 0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    unit = _SIZE_UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or len(found[1]) > 18:
        raise mistake(f"expected a size such as '50 GB' or '512 MiB', found {text!r}")
    return int(float(found[1]) * unit)


def split_command(words: Words) -> tuple[str, ...]:
    """The words of a command; what a shell does beyond quoting (`|`, `$X`, `>`) is not done."""
    try:
        found = tuple(shlex.split(words)) if isinstance(words, str) else words
    except ValueError as error:
        raise mistake(f"expected a command with closed quotes, found {words!r}") from error
    if found and not found[0].strip():
        raise mistake(f"expected a command that begins with a program, found {words!r}")
    return found


def check_repositories(repositories: Sequence[RepositorySettings]) -> None:
    """Raise for names and folders that cannot be told apart, or that leave the work area."""
    for each in repositories:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", each.name) or each.name == IMAGE:
            letters = f"letters, digits, '.', '_', '+' and '-' (and not {IMAGE!r})"
            raise mistake(f"repositories: expected a name of {letters}, found {each.name!r}")
        path = each.path
        odd = path.is_absolute() or "@" in str(path) or not str(path).isprintable()
        if odd or not path.parts or any(part.startswith(".") for part in path.parts):
            raise mistake(f"repository {each.name}: expected a folder below the work area, found {each.folder!r}")
    for what, words in (
        ("name", [each.name for each in repositories]),
        ("variable", [each.commit_variable for each in repositories]),
        ("folder", [str(each.path) for each in repositories]),
    ):
        for word, count in Counter(words).items():
            if count > 1:
                raise mistake(f"repositories: expected each {what} once, found {word!r} {count} times")
