"""Configuration: karat.toml, or [tool.karat] in pyproject.toml, over a preset, over the defaults.

In: a folder to start from. Out: a frozen `Config` that remembers where each value came from. Unknown keys are errors with a
suggestion: a misspelt threshold that is silently ignored is a golden nobody guards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import EnumType
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec.structs import asdict, replace

from karat.compare.rules import STATUS_ORDER, PartialRule, RuleBook, RuleTable
from karat.findings import UsageError, check_keys, expect, parse_fail_on, suggest
from karat.goldens.paths import DEFAULT_GLOBS
from karat.settings import (
    AuditSettings,
    BundleSettings,
    CheckExemption,
    CheckSettings,
    PolicySettings,
    RecordSettings,
    RefreshSettings,
    SnapshotSettings,
    StoreSettings,
    SuiteSettings,
)
from karat.system.command import Command

if TYPE_CHECKING:
    from karat.presets.suite import Suite

PRESETS = ("megatron-lm", "pytorch-dynamo")
_GOLDENS = ("paths", "exclude", "cases")

Settings = TypeVar("Settings", bound=msgspec.Struct)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What a project wants of karat."""

    paths: Sequence[str] = DEFAULT_GLOBS
    exclude: Sequence[str] = ()
    cases: Sequence[str] = ()
    rules: Sequence[PartialRule] = ()
    status: Sequence[str] = STATUS_ORDER
    fail_on: Sequence[str] = ("fail",)
    history: bool | None = None
    """Whether diff, summary and check hold moves against earlier ones; None: if that was asked for before."""
    exempt: Sequence[CheckExemption] = ()
    refresh: RefreshSettings = RefreshSettings()
    check: CheckSettings = CheckSettings()
    record: RecordSettings = RecordSettings()
    audit: AuditSettings = AuditSettings()
    bundles: BundleSettings = BundleSettings()
    snapshots: SnapshotSettings = SnapshotSettings()
    store: StoreSettings = StoreSettings()
    policy: PolicySettings = PolicySettings()
    suite: SuiteSettings = SuiteSettings()
    preset: str | None = None
    file: Path | None = None
    root: Path = Path()
    """The work tree, from which goldens and the files of a suite are named."""
    origins: Mapping[str, str] = {}
    """Key → where its value came from: a file, `preset NAME`, or `default`."""

    def rule_book(self) -> RuleBook:
        """The rules in force: the user's, what the suite's tree says, the preset's, the defaults."""
        book = RuleBook.of(self.rules)
        return RuleBook(book.rules, suite.rules) if (suite := self.suite_tree()) is not None else book

    def places(self) -> dict[str, Any]:
        """Where goldens are and what their paths say, as the options of many a room have it."""
        return {"globs": tuple(self.paths), "exclude": tuple(self.exclude), "cases": tuple(self.cases)}

    def checking(self) -> dict[str, Any]:
        """How results are checked, as `CheckOptions` has it."""
        suite, tables = self.suite_tree(), self.refresh.tables
        told: dict[str, Any] = {"flaky": suite.flaky} if suite else {}
        told |= {"rules": self.rule_book(), "status": tuple(self.status), "record": self.record}
        return {**told, "exemptions": tuple(self.exempt), "fill": tables.fill if tables else {}}

    def suite_tree(self) -> Suite | None:
        """What the suite's own tree says about its gate, if the preset knows where."""
        if self.suite == SuiteSettings():
            return None
        from karat.presets.suite import Suite

        preset = [rule for rule in self.rules if rule.origin.startswith("preset ")]
        return Suite(self.suite, self.root, preset)


_DEFAULTS = {name: getattr(Config(), name) for name in Config.__struct_fields__}
TABLES = {name: type(value) for name, value in _DEFAULTS.items() if isinstance(value, msgspec.Struct)}
"""Table of karat.toml → the struct that declares its keys, and an attribute of `Config`."""
_TOP = ("preset", "history", "rules", "status", "fail_on", "exempt", "goldens", *TABLES)


def find(start: Path) -> Path | None:
    """The nearest karat.toml, or pyproject.toml with a [tool.karat], from `start` upwards."""
    for folder in (start, *start.parents):
        own = folder / "karat.toml"
        if own.exists() or own.is_symlink():  # a link that leads nowhere is an error, and not no configuration
            return own
        project = folder / "pyproject.toml"
        if project.is_file() and _table_of(project) is not None:
            return project
        if (folder / ".git").exists():
            break
    return None


def load(start: Path, *, preset: str | None = None) -> Config:
    """The configuration that holds in `start`; `preset` overrules the file's."""
    file = find(start)
    around = (start.absolute(), *start.absolute().parents)
    root = next((folder for folder in around if (folder / ".git").exists()), around[0])
    raw = (_table_of(file) if file is not None else None) or {}
    chosen = preset or raw.get("preset")
    base = Config(root=root)
    if chosen is not None:
        where = str(file or "--preset")
        if chosen not in PRESETS:
            raise UsageError(
                f"{where}: no preset is called {chosen!r}{suggest(str(chosen), PRESETS)}; there are {', '.join(PRESETS)}",
                next_command="karat config --preset megatron-lm",
            )
        base = load_preset(chosen, base)
    try:
        config = _read(raw, file.name if file else "default", base, file=file, preset=chosen)
    except UsageError as error:
        # `karat config` would only stop at the same mistake.
        error.next_command = _edit(file) if file else error.next_command
        raise
    return replace(config, store=config.store.seen_from(file.parent if file else Path.cwd()))


def load_preset(name: str, base: Config | None = None) -> Config:
    """What a preset says, over the defaults."""
    import tomllib
    from importlib import resources

    text = resources.files("karat").joinpath("presets", f"{name}.toml").read_text(encoding="utf-8")
    return _read(tomllib.loads(text), f"preset {name}", base or Config())


def _edit(file: Path) -> Command:
    return Command("edit", str(file))


def _table_of(file: Path) -> dict[str, Any] | None:
    """Karat's own table in a file: all of karat.toml, [tool.karat] of pyproject.toml, or None."""
    from karat.system.foreign.limits import TEXT, read_plain
    from karat.system.foreign.toml import loads

    try:
        parsed = loads(read_plain(file, TEXT).decode())
    except ValueError as error:
        raise UsageError(f"expected TOML in {file}, found: {error}", next_command=_edit(file)) from error
    except OSError as error:
        raise UsageError(
            f"expected to read {file}, but: {error.strerror}", next_command=Command("ls", "-l", str(file))
        ) from error
    if file.name == "karat.toml":
        return parsed
    tools = parsed.get("tool")
    table = tools.get("karat") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: expected tool.karat to be a table, found {table!r}", next_command=_edit(file))
    return table


def _read(
    raw: Mapping[str, Any], origin: str, base: Config, *, file: Path | None = None, preset: str | None = None
) -> Config:
    check_keys(raw, _TOP, origin)
    origins = {**base.origins}
    tables: dict[str, Any] = {name: getattr(base, name) for name in TABLES}
    for name, value in raw.items():
        if name != "goldens" and name not in TABLES:
            origins[name] = origin
            continue
        expect(isinstance(value, dict), f"{origin}: [{name}] must be a table, found {value!r}")
        origins |= {f"{name}.{key}": origin for key in value}
        if name in TABLES:
            before = asdict(tables[name])
            tables[name] = _converted({**before, **value}, TABLES[name], f"{origin} [{name}]")
    goldens = raw.get("goldens", {})
    check_keys(goldens, _GOLDENS, f"{origin} [goldens]")
    rules: list[PartialRule] = []
    for entry, where in _tables_of(raw, "rules", origin):
        rules += _converted(entry, RuleTable, where).partial_rules(entry, origin)
    exempt: list[CheckExemption] = []
    for entry, where in _tables_of(raw, "exempt", origin):
        found = _converted(entry, CheckExemption, where)
        narrows = not {found.path, found.metric, found.row or "*"} <= {"*", "**"}
        expect(narrows, f"{where}: expected path, metric or row to narrow it, found an exemption of everything")
        exempt.append(found)
    history = raw.get("history", base.history)
    expect(history in {None, True, False}, f"{origin}: history must be true or false, found {history!r}")
    return Config(
        history=history,
        paths=_texts(goldens, "paths", base.paths, origin),
        exclude=_texts(goldens, "exclude", base.exclude, origin),
        cases=_texts(goldens, "cases", base.cases, origin),
        rules=(*rules, *base.rules),
        status=_texts(raw, "status", base.status, origin),
        fail_on=parse_fail_on(_texts(raw, "fail_on", base.fail_on, origin), f"{origin} fail_on", "karat config"),
        exempt=(*exempt, *base.exempt),
        **tables,
        preset=preset,
        file=file,
        root=base.root,
        origins=origins,
    )


def _tables_of(raw: Mapping[str, Any], name: str, origin: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The entries of [[name]], each with where it stands."""
    entries = raw.get(name, [])
    expect(isinstance(entries, list), f"{origin}: [[{name}]] must be a list of tables, found {entries!r}")
    for i, entry in enumerate(entries, 1):
        where = f"{origin} [[{name}]] number {i}"
        expect(isinstance(entry, dict), f"{where}: expected a table, found {entry!r}")
        yield entry, where


def _texts(table: Mapping[str, Any], key: str, default: Sequence[str], origin: str) -> Sequence[str]:
    if key not in table:
        return default
    value = table[key]
    items = [value] if isinstance(value, str) else value
    good = isinstance(items, list) and all(isinstance(item, str) for item in items)
    expect(good, f"{origin}: {key} must be a list of texts, found {value!r}")
    return tuple(items)


def _converted(table: Mapping[str, Any], kind: type[Settings], where: str) -> Settings:
    check_keys(table, kind.__struct_fields__, where)
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        said = in_our_words(str(error), kind)
        raise UsageError(f"{where}: {said}", next_command="karat config") from error


_NAMES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "date": "a day such as 2027-01-31",
    "null": "nothing",
    "datetime": "a day with a time",
}
_FOUND = {"int": "a number", "float": "a decimal number"}
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_TYPES = re.compile(r"Expected `([\w| ]+)`, got `(\w+)`")
_LIMIT = re.compile(r"Expected `(\w+)` ([<>]=?) (\S+)")


def in_our_words(text: str, kind: type[msgspec.Struct]) -> str:
    """What the decoder says, as karat would: the key, what was expected, and what was found."""
    said, _, place = text.partition(" - at `$")
    key = place.rstrip("`").removeprefix(".")
    missing, types, unknown = _MISSING.match(said), _TYPES.match(said), _UNKNOWN.match(said)
    if missing:
        return f"expected {f'{key}.' if key else ''}{missing[1]} to be set, found nothing"
    if unknown:
        known = next(_structs(_hint_at(kind, key)), kind).__struct_fields__
        within = f"{key}: " if key else ""
        return f"{within}unknown key {unknown[1]!r}{suggest(unknown[1], known)} (known: {', '.join(known)})"
    if types:
        names = types[1].replace("int | float", "float").split(" | ")
        words = [_NAMES.get(name, name) for name in names if name != "null"]
        return f"{key} must be {' or '.join(words)}, found {_FOUND.get(types[2]) or _NAMES.get(types[2], types[2])}"
    if limit := _LIMIT.match(said):
        return f"{key} must be {_NAMES.get(limit[1], limit[1])} {limit[2]} {limit[3].removesuffix('.0')}"
    choices = list(_choices(_hint_at(kind, key)))
    if choices and (found := said.removeprefix("Invalid enum value")) != said:
        return f"{key} must be {' or '.join(choices)}, found{found}"
    return f"{key}: {said}" if key else said


def _hint_at(kind: type[msgspec.Struct], key: str) -> object:
    """The type of a key such as `probe.metrics[0].which`, from the outermost struct inwards."""
    hint: object = kind
    for part in key.split(".") if key else ():
        inside = next(_structs(hint), None)
        hint = get_type_hints(inside).get(part.partition("[")[0]) if inside else None
    return hint


def _structs(hint: object) -> Iterator[type[msgspec.Struct]]:
    """The structs that a field may be, or hold."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in get_args(hint):
        yield from _structs(part)


def _choices(hint: object) -> Iterator[str]:
    """The texts that a field may be: of a Literal, of one that may be absent, and of an enumeration."""
    for part in hint if isinstance(hint, EnumType) else get_args(hint):
        if isinstance(part, str):
            yield part
        else:
            yield from _choices(part)
