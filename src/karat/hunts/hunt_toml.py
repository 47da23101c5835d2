"""Agreement: what hunt.toml says must fit together, beyond the type of each key.

Each mistake is a `UsageError` whose message begins with the key. Nothing is asked of a network or a disk here.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from karat.config import in_our_words
from karat.findings import CannotVerify, UsageError, suggest
from karat.hunts import settings as durations, settings as sizes, settings as words
from karat.hunts.journal.database import no_journal
from karat.hunts.probe.metrics import check_metrics
from karat.hunts.settings import (
    EDIT,
    CheckoutSettings,
    HuntSettings,
    ProbeSettings,
    Stage,
    check_names,
)
from karat.hunts.stages import stages
from karat.hunts.timelines.timeline import Workspace

T = TypeVar("T")
_MOST = 10_000
_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ALONE = ("packages", "values")
_ORDER = ("containers", "checkouts", "commits")


def validate(settings: HuntSettings) -> None:
    """Raises for the first thing that does not fit."""
    _probe(settings.probe)
    check_metrics(settings.probe)
    found = stages(settings)
    _chain(found)
    _tables(settings, {stage.timeline for stage in found})
    _repositories(settings)
    _first(settings, found[0])
    _search(settings)
    _engine(settings)
    _skip(settings.skip)


def expect(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as a sentence
    """A mistake, unless."""
    if not condition:
        raise UsageError(message, next_command=EDIT)


def _understood(key: str, reader: Callable[[T], object], value: T) -> None:
    try:
        reader(value)
    except UsageError as error:
        raise UsageError(f"{key}: {error}", next_command=EDIT) from error


def _probe(probe: ProbeSettings) -> None:
    for key, command in (
        ("command", probe.command),
        ("setup", probe.setup),
        ("identify", probe.identify),
    ):
        _understood(f"probe.{key}", words.split_command, command)
    expect(
        bool(words.split_command(probe.command)),
        "probe.command: expected a command, found no words",
    )
    _understood("probe.timeout", durations.parse_duration, probe.timeout)
    expect(durations.parse_duration(probe.timeout) > 0, "probe.timeout must be more than 0")
    for key, least in (("repeats", 1), ("warmups", 0)):
        number = getattr(probe, key)
        expect(
            least <= number <= _MOST,
            f"probe.{key} must be at least {least} and at most {_MOST:,}, found {number}",
        )
    expect(
        0 not in probe.skip_exit_codes,
        "probe.skip_exit_codes: expected codes of runs that say nothing, found 0, which is success",
    )
    for name in probe.env:
        expect(
            bool(name) and "=" not in name,
            f"probe.env: expected a name without '=', found {name!r}",
        )


def _tables(settings: HuntSettings, timelines: set[str]) -> None:
    """A stage without the table that says what it is about."""
    for name in ("containers", "packages", "values"):
        expect(
            name not in timelines or getattr(settings, name) is not None,
            f"stages names {name}: expected a table [{name}], found none",
        )
    for name in sorted(timelines & {"checkouts", "commits"}):
        expect(
            bool(settings.repositories),
            f"stages names {name}: expected [[repositories]], found none",
        )
    if settings.packages is not None:
        expect(
            _PROJECT.fullmatch(settings.packages.name) is not None,
            f"packages.name: expected the name of a project, found {settings.packages.name!r}; extras belong into requires",
        )
    if settings.values is not None:
        both = (bool(settings.values.list), bool(settings.values.file))
        expect(
            sum(both) == 1,
            "values: expected either list or file to be set, found "
            + ("both" if all(both) else "neither"),
        )
    for name in ("containers", "checkouts", "commits"):
        table = getattr(settings, name)
        if table is None:
            continue
        _understood(f"{name}.step", durations.parse_duration, table.step)
        expect(durations.parse_duration(table.step) > 0, f"{name}.step must be more than 0")
        expect(
            table.start is None or table.end is None or table.start <= table.end,
            f"{name}: expected start up to end, found {table.start} and {table.end}",
        )
    if settings.containers is not None:
        ahead = settings.containers.ahead
        expect(
            0 <= ahead <= _MOST,
            f"containers.ahead must be at least 0 and at most {_MOST:,}, found {ahead}",
        )
        _understood("containers.cache", sizes.parse_size, settings.containers.cache)
        expect(
            "{date" in settings.containers.image,
            f"containers.image: expected a template with {{date:%Y-%m-%d}}, found {settings.containers.image!r}",
        )


def _chain(found: Iterable[Stage]) -> None:
    """Coarse to fine: a stage must be able to look between two points of the one before it."""
    listed = list(found)
    for stage in listed:
        expect(
            stage.timeline not in _ALONE or len(listed) == 1,
            f"stages: expected {stage.timeline} alone, found it among {len(listed)} stages; nothing is finer or coarser than it",
        )
    for coarse, fine in pairwise(listed):
        if coarse.timeline not in _ORDER or fine.timeline not in _ORDER:
            continue
        steps = _ORDER.index(fine.timeline) - _ORDER.index(coarse.timeline)
        closer = coarse.step is not None and fine.step is not None and fine.step < coarse.step
        expect(
            steps > 0 or (steps == 0 and closer),
            f"stages: expected coarse to fine, found {coarse.text!r} before {fine.text!r}",
        )


def _repositories(settings: HuntSettings) -> None:
    check_names(settings.repositories)
    names = [repository.name for repository in settings.repositories]
    for table, checkouts in (("checkouts", settings.checkouts), ("commits", settings.commits)):
        if checkouts is not None:
            _revisions(table, checkouts, names)


def _revisions(table: str, checkouts: CheckoutSettings, names: list[str]) -> None:
    _understood(f"{table}.build", words.split_command, checkouts.build)
    _understood(f"{table}.build_timeout", durations.parse_duration, checkouts.build_timeout)
    _understood(f"{table}.margin", durations.parse_duration, checkouts.margin)
    for key, revisions in (("good", checkouts.good), ("bad", checkouts.bad)):
        for name in revisions:
            expect(
                name in names,
                f"{table}.{key}: no repository is called {name!r}{suggest(name, names)} (known: {', '.join(names)})",
            )


def _first(settings: HuntSettings, stage: Stage) -> None:
    """The first stage has no coarser one that says where to look."""
    if stage.timeline == "containers" and settings.containers is not None:
        for key, which in (("start", "first"), ("end", "last")):
            expect(
                getattr(settings.containers, key) is not None,
                f"containers.{key}: expected the {which} day, such as 2023-08-24, found nothing",
            )
    if stage.timeline == "checkouts":
        expect(
            settings.checkouts.start is not None,
            "checkouts.start: expected a day or a time to start at, found nothing",
        )
    if stage.timeline == "commits":
        table = settings.commits or settings.checkouts
        name = "commits" if settings.commits else "checkouts"
        expect(
            bool(table.good) or table.start is not None,
            f"{name}: expected good (repository = revision), or start, found neither",
        )


def _search(settings: HuntSettings) -> None:
    search = settings.search
    expect(
        0.5 < search.confidence < 1,
        f"search.confidence must be above 0.5 and below 1, found {search.confidence}",
    )
    expect(
        0 <= search.smallest < 1,
        f"search.smallest must be at least 0 and below 1, found {search.smallest}",
    )
    for key in ("grid", "max_runs", "confirmations"):
        value = getattr(search, key)
        expect(value >= 0, f"search.{key} must be at least 0, found {value}")


def _engine(settings: HuntSettings) -> None:
    engine = settings.engine
    expect(
        0 <= engine.slots <= _MOST,
        f"engine.slots must be at least 0 and at most {_MOST:,}, found {engine.slots}",
    )
    for key in ("cores", "gpus", "retries"):
        value = getattr(engine, key)
        expect(
            0 <= value <= _MOST,
            f"engine.{key} must be at least 0 and at most {_MOST:,}, found {value}",
        )
    for name, number in engine.resources.items():
        expect(
            0 <= number <= _MOST,
            f"engine.resources.{name} must be at least 0 and at most {_MOST:,}, found {number}",
        )
    _understood("engine.memory", sizes.parse_size, engine.memory)


def _skip(skip: Iterable[str]) -> None:
    for text in skip:
        old, dots, new = text.partition("..")
        good = bool(text.strip()) and (not dots or (bool(old.strip()) and bool(new.strip())))
        expect(good, f"skip: expected a point or a range OLD..NEW, found {text!r}")


# DOC-HERE hunt_file: hunt.toml: what a hunt puts under test, how, and what it looks at.
#
# In: a path. Out: `HuntSettings` in which every key is understood and everything fits together; what does not is an error that
# names the file and the key, before anything is pulled or built.

NAME = "hunt.toml"
_INDEX = re.compile(r"\[(\d+)\](\.?)")
_LONGEST = 1000
_TIMED = ("containers", "checkouts", "commits")


def read(path: Path) -> HuntSettings:
    """The settings of a hunt."""
    return parse(_text(path), path)


def parse(text: str, path: Path) -> HuntSettings:
    """The settings in a text; `path` is where it came from, for messages."""
    edit = f"edit {shlex.quote(str(path))}"
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"expected TOML in {path}, found: {error}", next_command=edit) from error
    return from_tables(raw, path)


def from_tables(raw: Mapping[str, Any], path: Path) -> HuntSettings:
    """The settings in tables, if they are some and fit together."""
    edit = f"edit {shlex.quote(str(path))}"
    try:
        _without_nul(raw, "")
        settings = msgspec.convert(_moments(raw), HuntSettings)
        validate(settings)
    except msgspec.ValidationError as error:
        said = _cut(_counted(in_our_words(str(error), HuntSettings)))
        raise UsageError(f"{path.name}: {said}", next_command=edit) from error
    except UsageError as error:
        said = _cut(str(error))
        raise UsageError(f"{path.name}: {said}", next_command=_next(error, edit)) from error
    return settings


def _counted(text: str) -> str:
    """`probe.metrics[0].which` as a person counts: `probe.metrics number 1: which`."""
    return _INDEX.sub(lambda found: f" number {int(found[1]) + 1}{': ' if found[2] else ''}", text)


def _cut(text: str) -> str:
    """A sentence that a person reads to its end, whatever was quoted in it."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _without_nul(found: Any, key: str) -> None:
    """Raises for a text that no program, file or address could be given."""
    if isinstance(found, str) and "\0" in found:
        raise UsageError(f"{key}: expected a text without NUL, found {found!r}", next_command=EDIT)
    if isinstance(found, Mapping):
        for name, each in found.items():
            _without_nul(name, key or "a key")
            _without_nul(each, f"{key}.{name}" if key else name)
    elif isinstance(found, list | tuple):
        for number, each in enumerate(found, 1):
            _without_nul(each, f"{key} number {number}")


def _next(error: UsageError, edit: str) -> str:
    """The file is what to edit, unless the mistake names something better."""
    return edit if error.next_command == EDIT else error.next_command


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"expected UTF-8 in {path}, found: {error}",
            next_command=f"file {shlex.quote(str(path))}",
        ) from error
    except FileNotFoundError as error:
        raise UsageError(
            f"expected a hunt in {path}, found no such file", next_command=_init(path)
        ) from error
    except OSError as error:
        raise UsageError(
            f"expected to read {path}, but: {error.strerror}",
            next_command=f"ls -l {shlex.quote(str(path))}",
        ) from error


def _moments(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with every day as its midnight and every time with a zone: the decoder takes moments only."""
    return {
        key: {name: _moment(value, f"{key}.{name}") for name, value in table.items()}
        if key in _TIMED and isinstance(table, dict)
        else table
        for key, table in raw.items()
    }


def _moment(value: Any, key: str) -> Any:
    if isinstance(value, str) and key.endswith((".start", ".end")):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError as error:
            raise UsageError(
                f"{key}: expected a day or a time such as 2023-08-24 or 2023-08-24T06:00:00Z, found {value!r}",
                next_command=EDIT,
            ) from error
    if isinstance(value, dt.datetime):
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    return value


def _init(path: Path) -> str:
    named = "" if str(path) == NAME else f" --output {shlex.quote(str(path))}"
    return f"karat hunt init{named}"


# DOC-HERE overrides: Overrides: what the command line says instead of hunt.toml. Kept in the journal, so that a resume knows them. Pure.

_S = TypeVar("_S", bound=msgspec.Struct)


class Overrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the command line says instead of hunt.toml; None and empty: nothing."""

    strategy: str | None = None
    confidence: float | None = None
    max_runs: int | None = None
    engine: str | None = None
    jobs: int | None = None
    metrics: tuple[str, ...] = ()
    stage: str | None = None

    def over(self, others: Overrides) -> Overrides:
        """These, and where they say nothing the others."""
        said = {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) not in (None, ())
        }
        return structs.replace(others, **said)


def apply_overrides(settings: HuntSettings, said: Overrides) -> HuntSettings:
    """The settings as the command line wants them."""
    search = _with(
        settings.search, strategy=said.strategy, confidence=said.confidence, max_runs=said.max_runs
    )
    engine = _with(settings.engine, kind=said.engine, slots=said.jobs)
    changed = structs.replace(settings, search=search, engine=engine)
    if said.metrics:
        changed = _only_metrics(changed, said.metrics)
    if said.stage is not None:
        changed = structs.replace(changed, stages=_from_stage(settings.stages, said.stage))
    return changed


def _with(struct: _S, **values: object) -> _S:
    return structs.replace(struct, **{k: v for k, v in values.items() if v is not None})


def _only_metrics(settings: HuntSettings, wanted: Sequence[str]) -> HuntSettings:
    known = [metric.name for metric in settings.probe.metrics]
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"--metric: expected one of {', '.join(known) or '(none)'}, found {name!r}{suggest(name, known)}",
                next_command="karat hunt run --help",
            )
    chosen = tuple(m for m in settings.probe.metrics if m.name in wanted)
    return structs.replace(settings, probe=structs.replace(settings.probe, metrics=chosen))


def _from_stage(stages: Sequence[str], wanted: str) -> tuple[str, ...]:
    """The stages from the one that is called so, or whose number it is, on."""
    for number, text in enumerate(stages):
        if wanted in {text, text.split()[0], str(number)}:
            return tuple(stages[number:])
    raise UsageError(
        f"--stage: expected one of {', '.join(map(repr, stages))}, found {wanted!r}{suggest(wanted, stages)}",
        next_command="karat hunt run --help",
    )


# DOC-HERE whereabouts: Whereabouts: where the files of a hunt are: hunt.toml, the work folder, the journal.

SUFFIX = ".hunt"
_WORK = Path(".karat") / "hunt"


def hunt_name(file: Path, settings: HuntSettings) -> str:
    """What a hunt is called: as hunt.toml says, or as its file is."""
    return settings.name or file.stem


def workspace_of(file: Path, settings: HuntSettings) -> Workspace:
    """Where a hunt works. Its id is the same every time, so that a resume finds the containers of before."""
    root = file.absolute().parent
    own = f"{root}\0{hunt_name(file, settings)}".encode("utf-8", "surrogateescape")
    return Workspace(root=root, work=root / settings.work, hunt=hashlib.sha256(own).hexdigest()[:8])


def ignore_in_git(place: Workspace) -> None:
    """Clones and builds are in nobody's `git status`. A folder that hunt.toml chose is its owner's to ignore."""
    own = place.work / ".gitignore"
    if place.work == place.root / _WORK and not own.exists():
        # A folder that cannot be written is told of by those who must.
        with suppress(OSError):
            own.write_text("*\n", encoding="ascii")


def journal_path(file: Path, settings: HuntSettings) -> Path:
    """Where a hunt's journal is, unless --journal says otherwise."""
    plain = re.sub(r"[^\w.-]+", "-", hunt_name(file, settings)).strip(".-") or "hunt"
    return _shown(workspace_of(file, settings).work / f"{plain}{SUFFIX}")


def find_journal(named: str | None) -> Path:
    """The journal that is meant: a journal, a hunt.toml, or what is in this folder."""
    if named is not None:
        path = Path(named)
        found = journal_path(path, read(path)) if path.suffix == ".toml" else path
    else:
        found = _in_this_folder()
    if not found.is_file():
        raise no_journal(found)
    return found


def _in_this_folder() -> Path:
    file = Path(NAME)
    if file.is_file():
        return journal_path(file, read(file))
    journals = sorted(_WORK.glob(f"*{SUFFIX}"))
    if len(journals) > 1:
        names = ", ".join(map(str, journals))
        raise UsageError(
            f"expected to be told which hunt is meant, found {names}",
            next_command=f"karat hunt status {shlex.quote(str(journals[0]))}",
        )
    return journals[0] if journals else _WORK / f"hunt{SUFFIX}"


def _shown(path: Path) -> Path:
    """Short where it is in this folder: it stands in advice that is typed again."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


# DOC-HERE init_file: A new hunt.toml: a preset, with what the folder itself says filled in.

PRESETS = {
    "git": "the commits of this repository",
    "jax-nightly": "nightly images, then hourly checkouts, then commits",
    "pypi": "released versions of a Python package",
}
_HOW_FAR = 200
"""Commits back where the repository has no tag to begin at."""


def preset(name: str) -> str:
    """The text of a preset, as it stands."""
    if name not in PRESETS:
        raise UsageError(
            f"no preset of a hunt is called {name!r}{suggest(name, list(PRESETS))}; there are {', '.join(PRESETS)}",
            next_command="karat hunt init --help",
        )
    file = resources.files("karat").joinpath("hunts", "presets", f"{name}.toml")
    return file.read_text(encoding="utf-8")


def preset_text(name: str, folder: Path) -> str:
    """A preset with what `folder` says filled in: its repository's name, branch and newest tag."""
    found = preset(name)
    if "@NAME@" not in found:
        return found
    known = _repository(folder)
    return re.sub(r"@([A-Z]+)@", lambda slot: known[slot[1]], found)


def _repository(folder: Path) -> dict[str, str]:
    from karat.system.git import find_root, resolve  # noqa: PLC0415 - not every preset asks git

    root = find_root(folder)
    if root is None:
        raise UsageError(
            f"expected {folder} to be in a git repository, whose commits the preset git hunts, found none",
            next_command="karat hunt init --preset pypi",
        )
    if resolve(root, "HEAD") is None:
        raise UsageError(
            f"expected commits in {root}, found none", next_command="git log --oneline -5"
        )
    name = json.dumps(re.sub(r"[^A-Za-z0-9_-]+", "-", root.name).strip("-") or "repository")
    url = _quoted(os.path.relpath(root, folder.resolve()))
    return {"NAME": name, "KEY": name, "URL": url, "BRANCH": _branch(root), "GOOD": _good(root)}


def _branch(root: Path) -> str:
    found = _said(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    return _quoted(found or _said(root, "rev-parse", "HEAD"))


def _good(root: Path) -> str:
    """The newest tag before HEAD, or a commit some way back, or the first there is."""
    tag = _said(root, "describe", "--tags", "--abbrev=0", "HEAD^")
    if tag:
        return _quoted(tag)
    return _quoted(
        _said(root, "rev-list", "--first-parent", f"--max-count={_HOW_FAR}", "HEAD").split()[-1]
    )


def _said(root: Path, *arguments: str) -> str:
    """Git's answer; nothing where it has none."""
    from karat.system.git import run_git  # noqa: PLC0415 - not every preset asks git

    try:
        return run_git(root, *arguments).decode("utf-8", "replace").strip()
    except CannotVerify:
        return ""


def _quoted(text: str) -> str:
    """A TOML text; JSON's form is one."""
    return json.dumps(text, ensure_ascii=False)
