from __future__ import annotations

import json
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, strategies as st

from karat.findings import Severity
from karat.policy.exemptions import ByOp, Exemption, is_slow, names_op, parse, read
from karat.policy.gate.needs import exemption_entry

SCHEMA = json.loads((Path(__file__).parents[2] / "src/karat/schemas/karat.exemptions.1.json").read_bytes())
GOOD = {
    "op": '"argmax"',
    "kind": '"special"',
    "reason": '"its gradient is that of a library we cannot change"',
    "owner": '"@alice"',
    "issue": '"https://example.org/issues/1"',
    "expires": "2027-01-31",
}


def toml(**said: str | None) -> str:
    """One entry; None leaves a key out."""
    keys = {**GOOD, **said}
    return "\n".join(["[[exemption]]", *(f"{key} = {value}" for key, value in keys.items() if value is not None)])


def said_of(text: str) -> str:
    """The objection to the only entry of a file."""
    found = parse(text.encode())
    assert found.entries == ()
    (finding,) = found.findings
    assert (finding.kind, finding.severity) == ("exemption-invalid", Severity.FAIL)
    assert finding.next is not None
    return finding.message


def test_an_entry_is_data_with_its_line() -> None:
    found = parse(f"# why\n\n{toml()}\n".encode(), "policy/exemptions.toml")
    assert found.findings == ()
    (entry,) = found.entries
    assert (entry.op, entry.scope, entry.rule, entry.line) == ("argmax", "*", "gradient", 3)
    assert entry.expires == date(2027, 1, 31)
    assert entry.label.startswith("policy/exemptions.toml:3 (op argmax, gradient, special, @alice)")


def test_lines_are_right_beside_long_texts() -> None:
    long = '"""\n[[exemption]]\nthis is text and no entry at all\n"""'
    text = "\n".join([toml(reason=long), toml(op='"sort"')])
    assert [entry.line for entry in parse(text.encode()).entries] == [1, 11]


def test_a_file_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert read(tmp_path / "exemptions.toml").entries == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"op": None}, "expected op to be set"),
        ({"owner": None}, "expected owner to be set"),
        ({"reason": None}, "expected reason to be set"),
        ({"kind": None}, "expected kind to be set"),
        ({"issue": None}, 'kind = "special" needs issue'),
        ({"expires": None}, 'kind = "special" needs expires'),
        ({"expires": '"2027-01-31"'}, "as a day without quotes"),
        ({"expires": "2027-01-31T00:00:00"}, "as a day without quotes"),
        ({"owner": '"  "'}, "expected owner to have a value"),
        ({"op": "7"}, "expected op to be a string"),
        ({"op": '"*"'}, "which matches nearly everything"),
        ({"op": '"?*"'}, "which matches nearly everything"),
        ({"op": '"[!x]*"'}, "which matches nearly everything"),
        ({"op": '"[a-z_]*_*"'}, "which matches nearly everything"),
        ({"op": '"*e*"'}, "which matches nearly everything"),
        ({"op": '"mylib.ops.*"'}, "which matches nearly everything"),
        ({"kind": '"spec\u0456al"'}, "there is no kind 'spec\\u0456al'; did you mean 'special'?"),
        ({"r\u0435ason": '"x"'}, "expected TOML"),
        ({'"r\u0435ason"': '"x"'}, "unknown key 'r\\u0435ason'; did you mean 'reason'?"),
        ({"resaon": '"x"'}, "unknown key 'resaon'; did you mean 'reason'?"),
        ({"kind": '"no-grad"'}, "did you mean 'no-grad-op'?"),
        ({"kind": '"too slow"'}, "is not a kind; too slow is no reason"),
        ({"kind": '"too-slow"'}, "is not a kind; too slow is no reason"),
        ({"rule": '"gradients"'}, "did you mean 'gradient'?"),
        ({"rule": '"weak"', "kind": '"no-grad-op"'}, 'which takes only kind = "special"'),
        ({"scope": '"inptu:X"'}, "did you mean 'input'?"),
        ({"reason": '"the check takes too long on CI"'}, "a constant number of forwards"),
        ({"reason": '"this test is very slow on the CPU"'}, "a constant number of forwards"),
        ({"reason": '"TODO"'}, "explains it to a stranger"),
        ({"reason": '"no need check grad"'}, "explains it to a stranger"),
        ({"reason": '"n/a n/a n/a"'}, "explains it to a stranger"),
        ({"issue": '"JIRA-7"'}, "expected issue to be a link"),
        ({"issue": '"javascript:alert(1)"'}, "expected issue to be a link"),
        ({"issue": '"https://"'}, "expected issue to be a link"),
        ({"rule": '"tolerance"'}, "needs max_relative_error"),
        ({"rule": '"tolerance"', "max_relative_error": "inf"}, "needs max_relative_error"),
        ({"rule": '"tolerance"', "max_relative_error": "true"}, "needs max_relative_error"),
        ({"rule": '"determinism"'}, "needs nondeterminism_bound"),
        ({"max_relative_error": "0.1"}, 'belongs to rule = "tolerance"'),
    ],
)
def test_what_lacks_something_is_a_finding_and_covers_nothing(change: dict[str, str | None], said: str) -> None:
    assert said in said_of(toml(**change))


@pytest.mark.parametrize("kind", ["no-grad-op", "integer-only"])
def test_what_is_verified_needs_no_end(kind: str) -> None:
    found = parse(toml(kind=f'"{kind}"', issue=None, expires=None).encode())
    assert (found.findings, len(found.entries)) == ((), 1)


def test_one_bad_entry_spoils_no_other() -> None:
    found = parse("\n".join([toml(kind='"slow"'), toml()]).encode())
    assert (len(found.entries), len(found.findings)) == (1, 1)


def test_saying_it_twice_is_said() -> None:
    again = toml(reason='"another good reason of ours"')
    found = parse(f"{toml()}\n{again}".encode())
    assert len(found.entries) == 1
    assert "repeats the entry of line 1" in found.findings[0].message


@pytest.mark.parametrize(
    "data", [b"[[exemption", b"\xff\xfe", b"exemption = 7", b"exemptions = []", b"exemption = [7]"]
)
def test_what_is_no_such_file_is_a_finding(data: bytes) -> None:
    found = parse(data)
    assert found.entries == ()
    assert [one.kind for one in found.findings] == ["exemption-invalid"]


@pytest.mark.parametrize(
    ("scope", "test", "there"),
    [
        ("*", "a/test_x.py::TestX", True),
        ("TestX", "a/test_x.py::TestX", True),
        ("a/test_x.py::TestX", "a/test_x.py::TestX", True),
        ("a/*::TestX", "a/test_x.py::TestX", True),
        ("TestX", "a/test_x.py::TestXY", False),
        ("TestX*", "a/test_x.py::TestXY", True),
        ("b/*", "a/test_x.py::TestX", False),
        ("TestOps", "a/test_x.py::TestOps[relu]", True),
        ("a/test_x.py::TestOps[relu]", "a/test_x.py::TestOps[relu]", True),
        ("a/test_x.py::TestOps[relu]", "a/test_x.py::TestOps[gelu]", False),
    ],
)
def test_a_scope_is_a_test_by_its_id_or_its_name(scope: str, test: str, there: bool) -> None:  # noqa: FBT001 - a value of the table
    assert entry(scope=scope).speaks_of(test) is there


def test_a_scope_may_be_an_input_or_a_dtype() -> None:
    assert entry(scope="input:Sh*").speaks_of("t::T", "Shape", "float32")
    assert not entry(scope="input:Shape").speaks_of("t::T", "X", "float32")
    assert entry(scope="dtype:float16").speaks_of("t::T", "X", "float16")
    assert not entry(scope="dtype:float16").speaks_of("t::T", "X", "float64")


def entry(**said: Any) -> Exemption:
    usual = {"op": "relu", "reason": "r", "owner": "o"}
    return Exemption(**{**usual, **said})


def test_an_op_is_meant_by_its_last_name_too() -> None:
    assert names_op("softmax", "mylib.ops.softmax")
    assert names_op("mylib.ops.*", "mylib.ops.softmax")
    assert not names_op("max", "mylib.ops.softmax")


@pytest.mark.parametrize(
    ("reason", "slow"),
    [
        ("too slow", True),
        ("Slow", True),
        ("the op is slow", True),
        ("it times out on Windows", True),
        ("the tensor is too large", True),
        ("the slow path has no kernel of its own", False),
        ("differences of a slowly growing function vanish", False),
    ],
)
def test_slowness_is_recognised(reason: str, slow: bool) -> None:  # noqa: FBT001
    assert is_slow(reason) is slow


def test_the_schema_agrees_with_the_reader() -> None:
    for text in (toml(), toml(kind='"no-grad-op"', issue=None, expires=None)):
        plain = json.loads(json.dumps(tomllib.loads(text), default=str))
        jsonschema.validate(plain, SCHEMA)
    for change in ({"kind": '"slow"'}, {"issue": None}, {"owner": None}, {"rule": '"tolerance"'}):
        plain = json.loads(json.dumps(tomllib.loads(toml(**change)), default=str))
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(plain, SCHEMA)


@pytest.mark.parametrize("op", ["x", "conv*", "mylib.ops.conv*", "*pool", "fft?d", "a.b", "t_"])
def test_a_name_or_a_family_may_be_exempt(op: str) -> None:
    assert parse(toml(op=f'"{op}"').encode()).findings == ()


_OPS = ("a", "b", "m.a", "m.n.b", "mylib.a", "ab", "")
_NAMES = ("a", "b", "m.a", "m.*", "?", "*b", "[ab]", "n.b", "m.n.b")


@given(ops=st.lists(st.sampled_from(_NAMES), max_size=8), asked=st.lists(st.sampled_from(_OPS)))
def test_entries_are_found_by_op_as_if_each_were_asked(ops: list[str], asked: list[str]) -> None:
    entries = [entry(op=op, line=line) for line, op in enumerate(ops)]
    named = ByOp(entries)
    for op in asked:
        assert list(named.about(op)) == [one for one in entries if names_op(one.op, op)]


@given(op=st.text(min_size=1).filter(lambda s: not set(s) & set("*?[")), scope=st.text(min_size=1))
def test_a_printed_entry_is_read_back_whatever_the_names(op: str, scope: str) -> None:
    text = exemption_entry(op=op, scope=scope, today=date(2026, 1, 1))
    filled = text.replace("https://…", "https://example.org/1")
    found = parse(filled.encode("utf-8", "surrogatepass"))
    if not found.findings:
        assert (found.entries[0].op, found.entries[0].line) == (op, 1)
        assert found.entries[0].expires == date(2026, 4, 1)
    else:
        # Names that no entry may have: blank, or a scope of a kind that there is not.
        assert not op.strip() or not scope.strip() or ":" in scope


@given(data=st.binary(max_size=200))
def test_no_file_makes_it_raise(data: bytes) -> None:
    found = parse(b"[[exemption]]\n" + data)
    assert len(found.entries) + len(found.findings) > 0
