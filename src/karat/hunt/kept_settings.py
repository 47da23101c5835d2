"""Settings as a journal keeps them: without secrets, and comparable with those of a resume. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from karat.hunt.settings import HuntSettings

HARMLESS = ("engine", "search", "name")
"""Tables and keys that change what is run next, and nothing about what was measured already."""
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
NOT_KEPT = "(not kept)"
"""Stands for the value of an environment variable."""
_LONG = 8


def kept(settings: HuntSettings) -> str:
    """The settings as JSON: of environment variables the names only, of URLs no user and no password."""
    return msgspec.json.encode(
        _without_secrets(msgspec.to_builtins(settings)), order="sorted"
    ).decode()


def _without_secrets(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        if name == "env":
            return dict.fromkeys(value, NOT_KEPT)
        return {key: _without_secrets(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(inner) for inner in value]
    return without_userinfo(value) if isinstance(value, str) else value


def without_userinfo(text: str) -> str:
    """`https://user:token@host/x` as `https://host/x`."""
    return _USERINFO.sub("", text)


def secrets(settings: HuntSettings) -> dict[str, str]:
    """Names and values of the environment that hunt.toml sets."""
    containers = settings.containers.env if settings.containers is not None else {}
    return {**containers, **settings.probe.env}


def cleaned(word: str, environment: Mapping[str, str]) -> str:
    """A word of a command without values of the environment: `-e TOKEN=abc` is `-e TOKEN=$TOKEN`."""
    for name, value in environment.items():
        word = word.replace(f"{name}={value}", f"{name}=${name}")
        if len(value) >= _LONG:
            word = word.replace(value, f"${name}")
    return without_userinfo(word)


def differences(old: str, new: str) -> tuple[str, ...]:
    """Keys whose values differ: `probe.command`, `containers.end`; those that are harmless are left out."""
    before, after = msgspec.json.decode(old), msgspec.json.decode(new)
    return tuple(path for path in _differing(before, after) if path.split(".")[0] not in HARMLESS)


def _differing(old: Any, new: Any, path: str = "") -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differing(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    else:
        yield path
