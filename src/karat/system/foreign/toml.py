"""TOML of strangers: every way in which a text is none is one ValueError, whose message fits behind "found: "."""

from __future__ import annotations

from typing import Any

from karat.system.foreign.limits import TOML


def loads(text: str) -> dict[str, Any]:
    """The tables in a text."""
    import tomllib

    if len(text) > TOML.value():
        raise ValueError(f"{len(text):,} characters, at most {TOML.value():,} are taken; {TOML.setting}")
    if any(line.count(".") > _DOTS for line in text.split("\n")):
        raise ValueError(f"a line of more than {_DOTS:,} dots")  # a key's parts take the square of their number
    try:
        found = tomllib.loads(text)
        _check(found)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # an integer that Python refuses to read, at thousands of digits
        raise ValueError(_TOO_LONG) from None
    return found


_DOTS = 2000
_TOO_LONG = "a whole number of more than 64 bits"


def _check(value: Any) -> None:
    """Refuses integers that TOML does not promise; written as hexadecimal they may have any length."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check(inner)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(_TOO_LONG)
