"""hunt.toml: where it is, what it says, what options override, and how a new one is made.

In: a path. Out: `HuntSettings` in which every key is understood and everything fits together; what does not is an error that
names the file and the key, before anything is pulled or built. Nothing is asked of a network.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from karat.config import in_our_words
from karat.engines.job import parse_size
from karat.findings import CannotVerify, UsageError, suggest
from karat.hunts.journal import no_journal
from karat.hunts.probe.metrics import check_metrics
from karat.hunts.settings import EDIT, HuntSettings, check_repositories, mistake, parse_duration, split_command, stages
from karat.hunts.timelines.timeline import Workspace
from karat.system.command import Command
from karat.system.foreign import toml
from karat.system.foreign.limits import TEXT, read_plain
from karat.system.hashes import sha256_hex

NAME = "hunt.toml"
SUFFIX = ".hunt"
PRESETS = ("git", "jax-nightly", "pypi")
_S = TypeVar("_S", bound=msgspec.Struct)
_WORK = Path(".karat") / "hunt"
_ORDER = ("containers", "checkouts", "commits")
_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def read(path: Path) -> HuntSettings:
    try:
        text = read_plain(path, TEXT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        said = f"expected UTF-8 in {path}, found: {error}"
        raise UsageError(said, next_command=Command("file", str(path))) from error
    except FileNotFoundError as error:
        init = Command("karat", "hunt", "init", *(() if str(path) == NAME else ("--output", str(path))))
        raise UsageError(f"expected a hunt in {path}, found no such file", next_command=init) from error
    except OSError as error:
        said = f"expected to read {path}, but: {error.strerror}"
        raise UsageError(said, next_command=Command("ls", "-l", str(path))) from error
    return parse(text, path)


def parse(text: str, path: Path) -> HuntSettings:
    try:
        raw = toml.loads(text)
    except ValueError as error:
        raise UsageError(f"expected TOML in {path}, found: {error}", next_command=Command("edit", str(path))) from error
    return from_tables(raw, path)


def from_tables(raw: Mapping[str, Any], path: Path) -> HuntSettings:
    """The settings in tables, if they are some and fit together."""
    edit = Command("edit", str(path))
    try:
        _refuse_nul(raw, "")
        # The decoder takes moments only: every day is its midnight, every time has a zone.
        timed = dict(raw)
        for key in _ORDER:
            if isinstance(table := raw.get(key), dict):
                timed[key] = {name: _moment(value, f"{key}.{name}") for name, value in table.items()}
        settings = msgspec.convert(timed, HuntSettings)
        validate(settings)
    except msgspec.ValidationError as error:
        # As a person counts: `probe.metrics[0].which` is `probe.metrics number 1: which`.
        said = in_our_words(str(error), HuntSettings)
        said = re.sub(r"\[(\d+)\](\.?)", lambda found: f" number {int(found[1]) + 1}{found[2] and ': '}", said)
        raise UsageError(f"{path.name}: {_cut(said)}", next_command=edit) from error
    except UsageError as error:
        # The file is what to edit, unless the mistake names something better.
        way = edit if error.next_command == EDIT else error.next_command
        raise UsageError(f"{path.name}: {_cut(str(error))}", next_command=way) from error
    return settings


def _cut(text: str) -> str:
    """A sentence that a person reads to its end, whatever was quoted in it."""
    return text if len(text) <= 1000 else f"{text[:1000]}…"


def _refuse_nul(found: Any, key: str) -> None:
    """Raise for a text that no program, file or address could be given."""
    if isinstance(found, str) and "\0" in found:
        raise mistake(f"{key}: expected a text without NUL, found {found!r}")
    if isinstance(found, Mapping):
        for name, each in found.items():
            _refuse_nul(name, key or "a key")
            _refuse_nul(each, f"{key}.{name}" if key else name)
    elif isinstance(found, list | tuple):
        for number, each in enumerate(found, 1):
            _refuse_nul(each, f"{key} number {number}")


def _moment(value: Any, key: str) -> Any:
    if isinstance(value, str) and key.endswith((".start", ".end")):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError as error:
            wanted = "a day or a time such as 2023-08-24 or 2023-08-24T06:00:00Z"
            raise mistake(f"{key}: expected {wanted}, found {value!r}") from error
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and not value.tzinfo else value


def validate(settings: HuntSettings) -> None:
    """Raise for the first thing that does not fit, beyond the type of each key; the message begins with the key."""
    probe = settings.probe
    _check_values(settings)
    _expect(bool(split_command(probe.command)), "probe.command: expected a command, found no words")
    if 0 in probe.skip_exit_codes:
        said = "expected exit codes that mean `cannot be tested`, found 0, which is success"
        raise mistake(f"probe.skip_exit_codes: {said}")
    for name in probe.env:
        _expect(bool(name) and "=" not in name, f"probe.env: expected a name without '=', found {name!r}")
    for name in probe.env_pass:
        named = f"probe.env_pass: expected the name of an environment variable, found {name!r}"
        _expect(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None, named)
    check_metrics(probe)
    found = stages(settings)
    # Coarse to fine: a stage must be able to look between two points of the one before it.
    for stage in found:
        if stage.timeline in {"packages", "values", "split"} and len(found) > 1:
            said = f"expected {stage.timeline} alone, found it among {len(found)} stages"
            raise mistake(f"stages: {said}; nothing is finer or coarser than it")
    for coarse, fine in pairwise(found):
        if coarse.timeline in _ORDER and fine.timeline in _ORDER:
            steps = _ORDER.index(fine.timeline) - _ORDER.index(coarse.timeline)
            closer = coarse.step is not None and fine.step is not None and fine.step < coarse.step
            if steps < 0 or (steps == 0 and not closer):
                raise mistake(f"stages: expected coarse to fine, found {coarse.text!r} before {fine.text!r}")
    _check_tables(settings, {stage.timeline for stage in found})
    check_repositories(settings.repositories)
    known = [each.name for each in settings.repositories]
    for key in ("checkouts.good", "checkouts.bad", "commits.good", "commits.bad"):
        for name in _value(settings, key) or ():
            said = f"no repository is called {name!r}{suggest(name, known)} (known: {', '.join(known)})"
            _expect(name in known, f"{key}: {said}")
    _check_first(settings, found[0].timeline)
    for text in settings.skip:
        old, dots, new = text.partition("..")
        good = bool(text.strip()) and (not dots or (bool(old.strip()) and bool(new.strip())))
        _expect(good, f"skip: expected a point or a range OLD..NEW, found {text!r}")


_POSITIVE = ("probe.timeout", "containers.step", "checkouts.step", "commits.step")
_READERS: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(("probe.command", "probe.setup", "probe.identify"), split_command),
    **dict.fromkeys(("checkouts.build", "commits.build"), split_command),
    **dict.fromkeys(
        (*_POSITIVE, "checkouts.build_timeout", "commits.build_timeout", "search.max_time"), parse_duration
    ),
    **dict.fromkeys(("containers.cache", "engine.memory"), parse_size),
}
"""Texts that something is read from."""


def _value(settings: HuntSettings, key: str) -> Any:
    """What stands at `probe.timeout`; None where there is no such table."""
    table, _, name = key.partition(".")
    return getattr(getattr(settings, table), name, None)


def _check_values(settings: HuntSettings) -> None:
    """Each key by itself, and what options can change, too: [search] and [engine]."""
    try:
        msgspec.convert(msgspec.to_builtins(settings), HuntSettings)
    except msgspec.ValidationError as error:
        raise mistake(in_our_words(str(error), HuntSettings)) from error
    for key, reader in _READERS.items():
        try:
            found = None if (value := _value(settings, key)) is None else reader(value)
        except UsageError as error:
            raise mistake(f"{key}: {error}") from error
        _expect(found != 0 or key not in _POSITIVE, f"{key} must be greater than 0")
    search = settings.search
    _expect(not (search.grid and search.min_dip), "search: expected grid or min_dip, found both")
    priced = not search.max_cost or any(structs.astuple(settings.cost))
    _expect(priced, "search.max_cost: expected prices in [cost] (run, build, pull, gpu_second), found none")


def _expect(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not condition:
        raise mistake(message)


def _check_tables(settings: HuntSettings, timelines: set[str]) -> None:
    """A stage needs the table that says what it is about."""
    for name in ("containers", "packages", "values", "split"):
        there = name not in timelines or getattr(settings, name) is not None
        _expect(there, f"stages names {name}: expected a table [{name}], found none")
    for name in sorted(timelines & {"checkouts", "commits", "split"}):
        _expect(bool(settings.repositories), f"stages names {name}: expected [[repositories]], found none")
    if settings.packages is not None and not _PROJECT.fullmatch(name := settings.packages.name):
        raise mistake(f"packages.name: expected the name of a project, found {name!r}; extras belong in requires")
    _expect(settings.values is None or bool(settings.values.list), "values.list: expected texts, found none")
    for name in _ORDER:
        if (table := getattr(settings, name)) is None:
            continue
        if table.start is not None and table.end is not None and table.start > table.end:
            raise mistake(f"{name}: expected start up to end, found {table.start} and {table.end}")
    if settings.containers is not None:
        image = settings.containers.image
        _expect("{date" in image, f"containers.image: expected a template with {{date:%Y-%m-%d}}, found {image!r}")


def _check_first(settings: HuntSettings, first: str) -> None:
    """The first stage has no coarser one that says where to look."""
    if first == "containers" and settings.containers is not None:
        for key, which in (("start", "first"), ("end", "last")):
            if getattr(settings.containers, key) is None:
                raise mistake(f"containers.{key}: expected the {which} day, such as 2023-08-24, found nothing")
    if first == "checkouts" and settings.checkouts.start is None:
        raise mistake("checkouts.start: expected a day or a time to start at, found nothing")
    table = settings.commits or settings.checkouts
    if first == "commits" and not table.good and table.start is None:
        name = "commits" if settings.commits else "checkouts"
        raise mistake(f"{name}: expected good (repository = revision), or start, found neither")


class Overrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What options say instead of hunt.toml; None and empty: nothing. Kept in the journal for `karat hunt resume`."""

    strategy: str | None = None
    confidence: float | None = None
    max_runs: int | None = None
    min_dip: int | None = None
    max_time: str | float | None = None
    max_cost: float | None = None
    priors: bool | None = None
    engine: str | None = None
    jobs: int | None = None
    metrics: tuple[str, ...] = ()
    stage: str | None = None

    def over(self, others: Overrides) -> Overrides:
        """These, and the others where these say nothing."""
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) not in (None, ())}
        return structs.replace(others, **said)


def apply_overrides(settings: HuntSettings, said: Overrides) -> HuntSettings:
    """The settings as the options want them; they must fit together as those of hunt.toml must."""
    keys = ("strategy", "confidence", "max_runs", "max_time", "max_cost", "min_dip", "priors")
    wanted = {key: getattr(said, key) for key in keys}
    search = _with(settings.search, **wanted, grid=0 if said.min_dip else None)
    engine = _with(settings.engine, kind=said.engine, slots=said.jobs)
    probe, words = settings.probe, settings.stages
    if said.metrics:
        known = [metric.name for metric in probe.metrics]
        for name in said.metrics:
            if name not in known:
                listed = ", ".join(known) or "(none)"
                raise _wrong_option(f"--metric: expected one of {listed}, found {name!r}{suggest(name, known)}")
        probe = structs.replace(probe, metrics=tuple(m for m in probe.metrics if m.name in said.metrics))
    if (start := said.stage) is not None:
        number = next((n for n, text in enumerate(words) if start in {text, text.split()[0], str(n)}), None)
        if number is None:
            listed = ", ".join(map(repr, words))
            raise _wrong_option(f"--stage: expected one of {listed}, found {start!r}{suggest(start, words)}")
        words = words[number:]
    changed = structs.replace(settings, search=search, engine=engine, probe=probe, stages=words)
    try:
        _check_values(changed)
        for key in ("max_runs", "max_time", "max_cost"):
            # Whoever has nothing left means nothing, and not no limit.
            value = parse_duration(wanted[key]) if key == "max_time" and wanted[key] is not None else wanted[key]
            least = f"search.{key}: expected more than 0, found {wanted[key]}; without it there is no limit"
            _expect(value != 0, least)
    except UsageError as error:
        raise _wrong_option(str(error)) from error
    return changed


def _wrong_option(message: str) -> UsageError:
    return UsageError(message, next_command="karat hunt run --help")


def _with(struct: _S, **values: object) -> _S:
    return structs.replace(struct, **{k: v for k, v in values.items() if v is not None})


def hunt_name(file: Path, settings: HuntSettings) -> str:
    return settings.name or file.stem


def workspace_of(file: Path, settings: HuntSettings) -> Workspace:
    """Where a hunt works. Its id is the same every time, so that a resume finds the containers of before."""
    root = file.absolute().parent
    own = f"{root}\0{hunt_name(file, settings)}".encode("utf-8", "surrogateescape")
    return Workspace(root=root, work=root / settings.work, hunt=sha256_hex(own)[:8])


def ignore_in_git(place: Workspace) -> None:
    """Clones and builds are in nobody's `git status`. A folder that hunt.toml chose is its owner's to ignore."""
    own = place.work / ".gitignore"
    if place.work == place.root / _WORK and not own.exists():
        # Whoever must write the folder says that it cannot be written.
        with suppress(OSError):
            own.write_text("*\n", encoding="ascii")


def journal_path(file: Path, settings: HuntSettings) -> Path:
    """Where a hunt's journal is, unless --journal says otherwise; short within this folder, since it is typed again."""
    plain = re.sub(r"[^\w.-]+", "-", hunt_name(file, settings)).strip(".-") or "hunt"
    path = workspace_of(file, settings).work / f"{plain}{SUFFIX}"
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def find_journal(named: str | None) -> Path:
    """The journal that is meant: a journal, a hunt.toml, or the one of this folder."""
    path = Path(named if named is not None else NAME)
    if path.suffix == ".toml" and (named is not None or path.is_file()):
        found = journal_path(path, read(path))
    elif named is not None:
        found = path
    else:
        journals = sorted(_WORK.glob(f"*{SUFFIX}"))
        if len(journals) > 1:
            said = f"expected the name of a journal, since there are several: {', '.join(map(str, journals))}"
            raise UsageError(said, next_command=Command("karat", "hunt", "status", str(journals[0])))
        found = journals[0] if journals else _WORK / f"hunt{SUFFIX}"
    if not found.is_file():
        raise no_journal(found)
    return found


def preset_text(name: str, folder: Path) -> str:
    """A preset with what `folder` says filled in: its repository's name, branch and newest tag."""
    if name not in PRESETS:
        said = f"no preset of a hunt is called {name!r}{suggest(name, PRESETS)}; there are {', '.join(PRESETS)}"
        raise UsageError(said, next_command="karat hunt init --help")
    found = resources.files("karat").joinpath("hunts", "presets", f"{name}.toml").read_text(encoding="utf-8")
    if "@NAME@" not in found:
        return found
    known = repository_around(folder)
    # JSON's form of a text is TOML's, too.
    return re.sub(r"@([A-Z]+)@", lambda slot: json.dumps(known[slot[1]], ensure_ascii=False), found)


def preset_scripts(name: str) -> dict[str, str]:
    folder = resources.files("karat").joinpath("hunts", "presets", name)
    files = sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def repository_around(folder: Path) -> dict[str, str]:
    """The repository that a folder is in: its name (twice: as a key), where it is, its branch, and a commit that may be good."""
    from karat.system.git import find_root, resolve, run_git

    root = find_root(folder)
    if root is None:
        said = f"expected {folder} to be in a git repository, whose commits are hunted, found none"
        raise UsageError(said, next_command="karat hunt init --preset pypi")
    if resolve(root, "HEAD") is None:
        raise UsageError(f"expected commits in {root}, found none", next_command="git log --oneline -5")

    def answer(*arguments: str) -> str:
        try:
            return run_git(root, *arguments).decode("utf-8", "replace").strip()
        except CannotVerify:
            return ""

    name = re.sub(r"[^A-Za-z0-9_-]+", "-", root.name).strip("-") or "repository"
    return {
        "NAME": name,
        "KEY": name,
        "URL": os.path.relpath(root, folder.resolve()),
        "BRANCH": answer("symbolic-ref", "--quiet", "--short", "HEAD") or answer("rev-parse", "HEAD"),
        # The newest tag before HEAD, or a commit some way back, or the first there is.
        "GOOD": answer("describe", "--tags", "--abbrev=0", "HEAD^")
        or answer("rev-list", "--first-parent", "--max-count=200", "HEAD").split()[-1],
    }
