"""What a journal keeps: the hunt with its settings (without secrets), stages, attempts, commands, what became of a change. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from karat.engines.job import Role
from karat.hunts.model import Attempt, Decision, Metric, Suspect, Verdict, Window
from karat.hunts.settings import HuntSettings
from karat.system.secrets import SHORTEST, is_secret_name

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
        # What a timeline of others calls its token; but password_env is the name of a variable.
        hidden = {k for k, text in kept.items() if isinstance(text, str) and is_secret_name(k) and k != "password_env"}
        return {**kept, **dict.fromkeys(hidden, NOT_KEPT)}
    if isinstance(value, list | tuple):
        return [_without_secrets(inner) for inner in value]
    return _USERINFO.sub("", without_assignments(value)) if isinstance(value, str) else value


def without_assignments(text: str) -> str:
    """`env API_KEY=abcdefgh python x.py` as `env API_KEY=$API_KEY python x.py`."""
    return _ASSIGNMENT.sub(lambda found: f"{found[1]}=${found[1]}" if is_secret_name(found[1]) else found[0], text)


def environment_values(settings: HuntSettings) -> dict[str, str]:
    """Names and values of the environment that hunt.toml sets."""
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


SEARCH = "search"
"""The purpose of attempts that a strategy asked for; others: `swap 2`, `confirm 2` (of change 2), `again`."""


class HuntRow(msgspec.Struct, frozen=True, kw_only=True):
    """The hunt itself, as it was begun."""

    name: str
    file: str
    root: str
    hunt: str  # The short id that names of containers carry.
    settings: str  # As JSON, without secrets.
    command: tuple[str, ...]
    metrics: tuple[Metric, ...]
    units: Mapping[str, str] = msgspec.field(default_factory=dict)


class StageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: a timeline, searched once."""

    key: str
    title: str
    timeline: str
    state: str = "running"  # running, done; whether a running one is at work is asked of the lock.
    parent: str = ""  # `0.2`: change 2 of stage 0 is what it looks into; empty for the first.
    levels: Mapping[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    window: Window | None = None
    decision: Decision | None = None
    notes: tuple[str, ...] = ()


class CommandRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One command of an attempt, for whoever wants to run it by hand; no value of the environment is kept."""

    role: Role
    argv: tuple[str, ...]
    name: str = ""
    cwd: str = ""
    env: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    skipped: bool = False
    error: str = ""
    seconds: float = 0.0


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with what only the journal keeps of it."""

    attempt: Attempt
    purpose: str = SEARCH
    lost: bool = False  # Whether the machine was lost: nothing is known of the point then.


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a change after the search: by swapping, by confirming, by zooming."""

    verdict: Verdict = Verdict()
    suspects: tuple[Suspect, ...] = ()
    zoom: str = ""  # The key of the stage that looked into it.
    swapped: bool = False  # Whether swapping is over; a verdict without a part is one, too.
    confirmed: bool = False
    since: str = ""
    towards: str = ""
    """The mixed points between which one part alone moves, and the change shows: a finer stage looks no further. Without
    `towards`: the one that has the change's commit, and nothing that others did before it, which it takes as well."""
