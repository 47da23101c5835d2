"""Configuration: karat.toml, or [tool.karat] in pyproject.toml, over a preset, over the defaults.

In: a folder to start from. Out: a frozen `Config` that remembers where each value came from.
Unknown keys are errors with a suggestion: a misspelt threshold that is silently ignored is a
golden nobody guards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from karat.captures.settings import BundleSettings
from karat.checks.settings import CheckSettings, Exemption
from karat.compare.rules import CHECKS, FIELDS, STATUS_ORDER, PartialRule, RuleBook
from karat.findings import Severity, UsageError, parse_fail_on, suggest
from karat.goldens.paths import DEFAULT_GLOBS
from karat.policy.settings import DEFAULT_RULE, RULES, PolicySettings
from karat.refreshes.settings import RefreshSettings
from karat.runs.settings import RecordSettings
from karat.store.settings import StoreSettings

PRESETS = ("megatron-lm", "pytorch-dynamo")
_SECTIONS = ("goldens", "refresh", "check", "record", "bundles", "store", "policy")
_TOP = ("preset", "rules", "status", "fail_on", "exempt", *_SECTIONS)
_GOLDENS = ("paths", "exclude", "cases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a project wants of karat."""

    paths: Sequence[str] = DEFAULT_GLOBS
    exclude: Sequence[str] = ()
    cases: Sequence[str] = ()
    rules: Sequence[PartialRule] = ()
    status: Sequence[str] = STATUS_ORDER
    fail_on: Sequence[str] = ("fail",)
    refresh: RefreshSettings = field(default_factory=RefreshSettings)
    check: CheckSettings = field(default_factory=CheckSettings)
    record: RecordSettings = field(default_factory=RecordSettings)
    bundles: BundleSettings = field(default_factory=BundleSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    exempt: Sequence[Exemption] = ()
    preset: str | None = None
    file: Path | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    """Key → where its value came from: a file, `preset NAME`, or `default`."""

    def rule_book(self) -> RuleBook:
        """The rules in force, with the defaults underneath."""
        return RuleBook.of(self.rules)


def find(start: Path) -> Path | None:
    """The nearest karat.toml, or pyproject.toml with a [tool.karat], from `start` upwards."""
    for folder in (start, *start.parents):
        own = folder / "karat.toml"
        if own.is_file():
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
    raw: dict[str, Any] = {}
    if file is not None:
        raw = _table_of(file) or {}
    chosen = preset or raw.get("preset")
    if chosen is None:
        base = Config()
    else:
        _check_preset(chosen, str(file or "--preset"))
        base = _read(_preset(chosen), f"preset {chosen}", Config())
    if file is None:
        return _read({}, "default", base, preset=chosen)
    try:
        return _read(raw, file.name, base, file=file, preset=chosen)
    except UsageError as error:
        # `karat config` would only stop at the same mistake.
        error.next_command = _edit(file)
        raise


def _edit(file: Path) -> str:
    import shlex  # noqa: PLC0415 - only for mistakes

    return f"edit {shlex.quote(str(file))}"


def _table_of(file: Path) -> dict[str, Any] | None:
    """Karat's own table in a file: all of karat.toml, [tool.karat] of pyproject.toml, or None."""
    parsed = _parse(file)
    if file.name == "karat.toml":
        return parsed
    tools = parsed.get("tool")
    table = tools.get("karat") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(
            f"{file}: expected tool.karat to be a table, found {table!r}",
            next_command=_edit(file),
        )
    return table


def _parse(file: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - many projects have no configuration

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"expected TOML in {file}, found: {error}", next_command=_edit(file)
        ) from error
    except OSError as error:
        raise UsageError(
            f"expected to read {file}, but: {error.strerror}", next_command=f"ls -l {file}"
        ) from error


def _check_preset(name: object, where: str) -> None:
    if name not in PRESETS:
        raise UsageError(
            f"{where}: no preset is called {name!r}{suggest(str(name), PRESETS)}; there are {', '.join(PRESETS)}",
            next_command="karat config --preset megatron-lm",
        )


def _preset(name: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - many projects name no preset
    from importlib import resources  # noqa: PLC0415

    text = resources.files("karat").joinpath("presets", f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _known(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise UsageError(
                f"{where}: unknown key {key!r}{suggest(key, known)} (known: {', '.join(known)})",
                next_command="karat config",
            )


def _read(
    raw: Mapping[str, Any],
    origin: str,
    base: Config,
    *,
    file: Path | None = None,
    preset: str | None = None,
) -> Config:
    _known(raw, _TOP, origin)
    for section in _SECTIONS:
        table = raw.get(section, {})
        _expect(isinstance(table, dict), f"{origin}: [{section}] must be a table, found {table!r}")
    goldens = raw.get("goldens", {})
    _known(goldens, _GOLDENS, f"{origin} [goldens]")
    rules = raw.get("rules", [])
    _expect(
        isinstance(rules, list), f"{origin}: [[rules]] must be a list of tables, found {rules!r}"
    )
    origins = {**base.origins, **dict.fromkeys((k for k in raw if k not in _SECTIONS), origin)}
    for section in _SECTIONS:
        origins |= {f"{section}.{key}": origin for key in raw.get(section, {})}
    return Config(
        paths=_texts(goldens, "paths", base.paths, origin),
        exclude=_texts(goldens, "exclude", base.exclude, origin),
        cases=_texts(goldens, "cases", base.cases, origin),
        rules=(*(_rule(rule, i, origin) for i, rule in enumerate(rules)), *base.rules),
        status=_texts(raw, "status", base.status, origin),
        fail_on=parse_fail_on(
            _texts(raw, "fail_on", base.fail_on, origin), f"{origin} fail_on", "karat config"
        ),
        refresh=_section(raw, "refresh", base.refresh, origin),
        check=_section(raw, "check", base.check, origin),
        record=_section(raw, "record", base.record, origin),
        bundles=_section(raw, "bundles", base.bundles, origin),
        store=_section(raw, "store", base.store, origin).seen_from(
            file.parent if file is not None else Path.cwd()
        ),
        policy=_policy(raw, base.policy, origin),
        exempt=(*_exemptions(raw, origin), *base.exempt),
        preset=preset,
        file=file,
        origins=origins,
    )


def _expect(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not condition:
        raise UsageError(message, next_command="karat config")


def _texts(
    table: Mapping[str, Any], key: str, default: Sequence[str], origin: str
) -> Sequence[str]:
    if key not in table:
        return default
    value = table[key]
    items = [value] if isinstance(value, str) else value
    good = isinstance(items, list) and all(isinstance(item, str) for item in items)
    _expect(good, f"{origin}: {key} must be a list of texts, found {value!r}")
    return tuple(items)


Settings = TypeVar("Settings", bound=msgspec.Struct)


def _section(raw: Mapping[str, Any], name: str, base: Settings, origin: str) -> Settings:
    """A table of the file, key by key over what stood there before."""
    table = raw.get(name, {})
    under = {key: getattr(base, key) for key in base.__struct_fields__}
    return _converted({**under, **table}, type(base), f"{origin} [{name}]")


def _policy(raw: Mapping[str, Any], base: PolicySettings, origin: str) -> PolicySettings:
    """The table [policy]; approvers of a rule that there is not would approve nothing, in silence."""
    found = _section(raw, "policy", base, origin)
    _known(found.approvers, (*RULES, DEFAULT_RULE), f"{origin} [policy.approvers]")
    return found


def _exemptions(raw: Mapping[str, Any], origin: str) -> list[Exemption]:
    entries = raw.get("exempt", [])
    good = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    _expect(good, f"{origin}: [[exempt]] must be a list of tables, found {entries!r}")
    return [
        _exemption(entry, f"{origin} [[exempt]] number {i}") for i, entry in enumerate(entries, 1)
    ]


def _exemption(entry: Mapping[str, Any], where: str) -> Exemption:
    found = _converted(entry, Exemption, where)
    everything = {found.path, found.metric, found.row or "*"} <= {"*", "**"}
    _expect(
        not everything,
        f"{where}: expected path, metric or row to narrow it, found an exemption of everything",
    )
    return found


def _converted(table: Mapping[str, Any], kind: type[Settings], where: str) -> Settings:
    _known(table, kind.__struct_fields__, where)
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        said = in_our_words(str(error), kind)
        raise UsageError(f"{where}: {said}", next_command="karat config") from error


_NAMES = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false",
          "array": "a list", "object": "a table", "date": "a day such as 2027-01-31",
          "null": "nothing", "datetime": "a day with a time"}  # fmt: skip
_FOUND = {"int": "a number", "float": "a decimal number"}
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_TYPES = re.compile(r"Expected `([\w| ]+)`, got `(\w+)`")


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
    """The texts that a field may be: of a Literal, and of one that may be absent."""
    for part in get_args(hint):
        if isinstance(part, str):
            yield part
        else:
            yield from _choices(part)


def _rule(raw: object, index: int, origin: str) -> PartialRule:
    where = f"{origin} [[rules]] number {index + 1}"
    if not isinstance(raw, dict):
        raise UsageError(f"{where}: expected a table, found {raw!r}", next_command="karat config")
    _known(raw, ("metric", "path", *sorted(FIELDS)), where)
    pattern, path = raw.get("metric"), raw.get("path", "*")
    _expect(isinstance(pattern, str), f'{where}: expected metric = "…" (a glob), found {pattern!r}')
    _expect(isinstance(path, str), f'{where}: expected path = "…" (a glob), found {path!r}')
    sets = {key: _value(key, raw[key], where) for key in raw if key not in {"metric", "path"}}
    _agree(sets, where)
    return PartialRule(str(pattern), sets, origin, str(path))


def _agree(sets: Mapping[str, Any], where: str) -> None:
    """Keys that only one way of checking reads: beside another they would be ignored in silence."""
    bounds = [key for key in ("min", "max") if key in sets]
    ranged = sets.get("check") == "range"
    _expect(
        not bounds or ranged, f'{where}: expected check = "range" beside {" and ".join(bounds)}'
    )
    _expect(bool(bounds) or not ranged, f'{where}: expected min or max beside check = "range"')
    if len(bounds) > 1:
        found = f"found {sets['min']:g} and {sets['max']:g}"
        _expect(sets["min"] <= sets["max"], f"{where}: expected min up to max, {found}")
    windows = sorted(_WINDOWS & sets.keys())
    median = sets.get("check", "median") == "median"
    beside = " and ".join(windows)
    _expect(not windows or median, f'{where}: expected check = "median" beside {beside}')


_TEXT = {
    "family": None,
    "margin_column": None,
    "better": ("lower", "higher"),
    "check": CHECKS,
    "worst": tuple(Severity),
}
_WINDOWS = frozenset({"window", "short_window"})
_FLAGS = frozenset({"exact", "steady", "tolerance"})


def _value(key: str, value: Any, where: str) -> Any:
    if key in _FLAGS:
        _expect(isinstance(value, bool), f"{where}: {key} must be true or false, found {value!r}")
        return value
    if key in _TEXT:
        allowed = _TEXT[key]
        fits = isinstance(value, str) and (allowed is None or value in allowed)
        choices = " or ".join(allowed) if allowed else "a text"
        _expect(fits, f"{where}: {key} must be {choices}, found {value!r}")
        return Severity(value) if key == "worst" else value
    if key in _WINDOWS:
        return _window(key, value, where)
    return _number(key, value, where)


_LIMITS = {"min": -inf, "max": -inf}
_BELOW = {"rtol": inf, "atol": inf, "outliers": inf, "min": inf, "max": inf,
          "outlier_share": 0.5, "warm_up": 1}  # fmt: skip
"""What a number must stay below: without an end, it would let everything pass."""


def _number(key: str, value: Any, where: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    least, below = _LIMITS.get(key, 0), _BELOW.get(key)
    words = "a number" if least else "a number of at least 0"
    words += f" and below {below:g}" if below is not None and below < inf else ""
    # `not value < 0` would let NaN through, and a NaN threshold would pass everything.
    good = number and value >= least and (below is None or abs(value) < below)
    _expect(good, f"{where}: {key} must be {words}, found {value!r}")
    return float(value)


def _window(key: str, value: Any, where: str) -> tuple[int, int]:
    """First and last step, both inside."""
    whole = isinstance(value, list) and all(type(step) is int for step in value)
    good = whole and len(value) == 2 and 0 <= value[0] <= value[1]
    _expect(good, f"{where}: {key} must be [first step, last step], found {value!r}")
    return value[0], value[1]
