"""TOML of strangers: whatever is wrong with it is one error, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from karat import config
from karat.findings import UsageError
from karat.hunts import hunt_toml
from karat.policy import exemptions
from karat.system.foreign.toml import loads

HOSTILE = {
    "decimal": "preset = " + "9" * 5000,
    "hexadecimal": "preset = 0x" + "f" * 5000,
    "in a list": "preset = [[0x" + "f" * 20 + "]]",
    "nested lists": "preset = " + "[" * 5000 + "]" * 5000,
    "nested tables": ".".join("a" * 3000) + " = 1",
}
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


@hostile
def test_it_is_one_error(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"^(a whole number of more than 64 bits|its values are nested too deeply|a line of more than 2,000 dots)$",
    ):
        loads(text)


@hostile
def test_in_karat_toml(tmp_path: Path, text: str) -> None:
    (tmp_path / "karat.toml").write_text(text)
    with pytest.raises(UsageError, match=r"expected TOML in .*karat.toml, found: ") as error:
        config.load(tmp_path)
    assert error.value.next_command


@hostile
def test_in_hunt_toml(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected TOML in hunt.toml, found: "):
        hunt_toml.parse(text, Path("hunt.toml"))


@hostile
def test_in_exemptions(text: str) -> None:
    (found,) = exemptions.parse(text.encode()).findings
    assert found.message.startswith("exemptions.toml: expected TOML, found: ")


@pytest.mark.parametrize("text", ["a" + ".a" * 100_000 + "=1", "[a" + '."b"' * 100_000 + "]"])
def test_a_key_of_many_parts_is_refused_before_it_is_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"a line of more than 2,000 dots"):
        loads(text)


def test_more_than_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="KARAT_MAX_TOML_MB changes the limit"):
        loads("a=[" + "1," * (1 << 19) + "]")


def test_whole_numbers_of_64_bits_are_numbers() -> None:
    assert loads("a = -9223372036854775808\nb = 9223372036854775807") == {"a": -(1 << 63), "b": (1 << 63) - 1}
