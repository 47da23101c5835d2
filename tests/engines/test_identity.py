from __future__ import annotations

import json

from hypothesis import given, strategies as st

from karat.engines.runner import identity_key, read_identity

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=40)
IDENTITIES = st.dictionaries(NAMES, VALUES.map(str.strip), max_size=5)


@given(IDENTITIES)
def test_lines_and_objects_say_the_same(identity: dict[str, str]) -> None:
    lines = "".join(f"{name} = {value}\n" for name, value in identity.items())
    assert read_identity(lines.encode()) == identity
    assert read_identity(json.dumps(identity).encode()) == identity


@given(IDENTITIES, IDENTITIES)
def test_keys_are_equal_exactly_for_equal_identities(a: dict[str, str], b: dict[str, str]) -> None:
    assert (identity_key(a) == identity_key(b)) == (a == b)
    assert identity_key(dict(reversed(a.items()))) == identity_key(a)


@given(st.binary(max_size=200))
def test_anything_may_be_printed(output: bytes) -> None:
    assert all(isinstance(value, str) for value in read_identity(output).values())
    json.dumps(read_identity(output)).encode("utf-8")


def test_nothing_known_has_no_key() -> None:
    assert identity_key({}) == ""


def test_objects_within_objects_have_names_with_dots() -> None:
    said = b'{"commit": {"xla": "1a2b", "jax": "3c"}, "cuda": 12.8, "debug": false, "l": [1, "a"]}'
    assert read_identity(said) == {
        "commit.xla": "1a2b",
        "commit.jax": "3c",
        "cuda": "12.8",
        "debug": "false",
        "l": '[1, "a"]',
    }


def test_lines_that_say_nothing_are_left_out() -> None:
    said = b"Loading...\n  jaxlib = 0.4.14 \nx==y\n=1\nurl=https://a/?b=c\n[1]\n"
    assert read_identity(said) == {"jaxlib": "0.4.14", "x": "=y", "url": "https://a/?b=c"}


def test_an_endless_identity_is_cut() -> None:
    assert len(read_identity(b"\n".join(b"n%d=1" % n for n in range(5000)))) == 1000
    assert len(read_identity(b"a=" + b"x" * 100_000)["a"]) == 4096
    assert read_identity(b"[" * 100_000) == {}
