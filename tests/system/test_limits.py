"""Limits: what a stranger's file may cost, named in the message with the setting that changes it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from factories.commands import karat_here
from factories.ends import ends
from factories.repositories import Repository
from karat.compare.gate.result import Judging
from karat.compare.gate.table import gate_table
from karat.compare.rules import RuleBook
from karat.compare.table import compare_table
from karat.findings import UsageError
from karat.goldens import formats
from karat.goldens.shapes import Table
from karat.system.archives import Archive, Unusable
from karat.system.foreign.limits import COLUMNS, GOLDEN, RATIO, ROWS


def table(columns: int, *, key_last: bool = False) -> Table:
    names = [f"c{n}" for n in range(columns)]
    names = [*names, "name"] if key_last else ["name", *names]
    data = f"{','.join(names)}\n{','.join(str(n) for n in range(len(names)))}\n".encode()
    golden = formats.read(data).golden
    assert isinstance(golden, Table)
    return golden


@pytest.mark.slow
@pytest.mark.parametrize("key_last", [False, True])
def test_a_table_of_very_many_columns_is_compared_and_judged(
    monkeypatch: pytest.MonkeyPatch, *, key_last: bool
) -> None:
    monkeypatch.setenv(COLUMNS.variable, "100000")
    with ends():
        one = table(50_000, key_last=key_last)
        compare_table(one, one, RuleBook(), "t.csv")
        gate_table(one, one, Judging(path="t.csv"))


def test_a_table_of_too_many_columns_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"name,{','.join(f'c{n}' for n in range(10_000))}\nm{',1' * 10_000}\n".encode()
    (found,) = formats.read(data).findings
    assert found.message == "expected at most 10,000 columns, found 10,001; KARAT_MAX_COLUMNS changes the limit"
    monkeypatch.setenv(COLUMNS.variable, "10001")
    assert formats.read(data).golden is not None


def test_a_golden_of_too_many_bytes_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GOLDEN.variable, "1")
    reading = formats.read(b'{"loss": [' + b"1, " * (1 << 19) + b"1]}", "a.json")
    (found,) = reading.findings
    assert (reading.golden, found.kind, found.path) == (None, "unreadable", "a.json")
    assert (
        found.message
        == "expected a golden of at most 1,048,576 bytes, found 1,572,877; KARAT_MAX_GOLDEN_MB changes the limit"
    )


@pytest.mark.parametrize("data", [b"a\n" * 1_000_001, b"[" + b"1," * 1_000_001 + b"1]", b"1 2\n" * 1_000_001])
def test_a_golden_of_too_many_values_is_one_finding(data: bytes) -> None:
    with ends():
        (found,) = formats.read(data, "a.json").findings
    assert (found.kind, found.path) == ("unreadable", "a.json")
    assert "at most 1,000,000 lines and values, found 1,000,001; KARAT_MAX_VALUES changes the limit" in found.message


def test_a_limit_that_is_no_number_is_said() -> None:
    with pytest.raises(UsageError, match=r"from 1 to .* in KARAT_MAX_ROWS, found 'all'"):
        ROWS.value({"KARAT_MAX_ROWS": "all"})
    assert GOLDEN.value({GOLDEN.variable: "3"}) == 3 << 20


def packed(size: int, every: int) -> io.BytesIO:
    """A zip whose member has something new `every` so many bytes."""
    body = b"".join(n.to_bytes(4, "big") + bytes(every - 4) for n in range(size // every))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("golden.json", body)
    return file


def test_what_unpacks_to_hundreds_of_times_its_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    file = packed(5 << 20, 4096)
    with pytest.raises(Unusable, match=r"more than 100-fold: a bomb; KARAT_MAX_RATIO changes the limit"):
        Archive(file).wanted(lambda _: True)
    monkeypatch.setenv(RATIO.variable, "1100")
    assert Archive(file).wanted(lambda _: True)


def test_small_members_may_be_as_dense_as_they_like() -> None:
    assert Archive(packed(3 << 20, 4096)).wanted(lambda _: True)


def test_a_member_beyond_the_limit_names_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KARAT_MAX_UNPACKED_MB", "1")
    with pytest.raises(Unusable, match="KARAT_MAX_UNPACKED_MB changes the limit"):
        Archive(packed(2 << 20, 16)).wanted(lambda _: True)


@pytest.mark.parametrize(
    ("variable", "low", "high"), [("KARAT_MAX_MEMBERS", "1", "2"), ("KARAT_MAX_TOTAL_MB", "1", "2")]
)
def test_members_and_what_they_unpack_to_together_have_settings(
    monkeypatch: pytest.MonkeyPatch, variable: str, low: str, high: str
) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in "ab":
            archive.writestr(name, bytes(1 << 20))
    monkeypatch.setenv(variable, low)
    with pytest.raises(Unusable, match=f"{variable} changes the limit"):
        Archive(file).wanted(lambda _: True)
    monkeypatch.setenv(variable, high)
    assert len(Archive(file).wanted(lambda _: True)) == 2


def test_columns_are_reported_in_the_order_of_the_table() -> None:
    one = formats.read(b"name,b,a,c\nm,1,2,3\n").golden
    assert isinstance(one, Table)
    rows, _ = compare_table(one, one, RuleBook(), "t.csv")
    results, _ = gate_table(one, one, Judging(path="t.csv"))
    assert [row.metric for row in rows] == ["b", "a", "c"]
    assert [result.metric for result in results][-3:] == ["b", "a", "c"]


LONG = '{"loss": {"1": 1.0, "2": 2.0}' + " " * (3 << 19) + "}\n"
SHORT = '{"loss": {"1": 1.0, "2": 2.5}}\n'


@pytest.mark.parametrize(
    "words",
    [
        ("diff",),
        ("diff", "HEAD~1", "HEAD"),
        ("check", "short/a.json", "--golden", "HEAD:goldens/a.json"),
        ("check", "short/a.json", "--golden", "goldens/a.json"),
        ("record", "short/a.json", "-o", "goldens/a.json"),
        ("tolerance", "--golden", "goldens/a.json"),
        ("changes", "--golden", "goldens/a.json"),
        ("refresh", "--source", "folder", "long", "--scope", "all"),
        ("refresh", "--source", "folder", "short", "--scope", "all"),
    ],
    ids=" ".join,
)
def test_a_long_golden_is_refused_by_its_size_wherever_it_is(tmp_path: Path, words: tuple[str, ...]) -> None:
    tree = Repository(tmp_path / "tree")
    tree.write("goldens/a.json", SHORT)
    tree.commit()
    tree.write("goldens/a.json", LONG)
    tree.commit()
    tree.write("goldens/a.json", LONG.replace("}\n", "}"))  # differs in its last byte alone
    tree.write("short/a.json", SHORT)
    tree.write("long/a.json", LONG)
    done = karat_here(*words, cwd=tree.root, KARAT_MAX_GOLDEN_MB="1")
    assert done.code in {1, 3}
    assert "KARAT_MAX_GOLDEN_MB changes the limit" in done.out + done.err
    assert (tree.root / "goldens/a.json").stat().st_size > 1 << 20


def test_a_long_golden_of_head_is_not_replaced_unread(tmp_path: Path) -> None:
    tree = Repository(tmp_path / "tree")
    tree.write("goldens/a.json", LONG)
    tree.commit()
    for path in ("goldens/a.json", "short/a.json"):
        tree.write(path, SHORT)
    done = karat_here(
        "refresh", "--source", "folder", "short", "--scope", "all", cwd=tree.root, KARAT_MAX_GOLDEN_MB="1"
    )
    assert (done.code, "KARAT_MAX_GOLDEN_MB" in done.out + done.err) == (1, True)


def test_a_text_that_people_write_by_hand_has_a_limit(tmp_path: Path) -> None:
    for name, words in (("karat.toml", ("config",)), ("hunt.toml", ("hunt", "run"))):
        (tmp_path / name).write_text("#" * (1 << 20) + "\n")
        done = karat_here(*words, cwd=tmp_path, KARAT_MAX_TEXT_MB="1")
        assert (done.code, "KARAT_MAX_TEXT_MB changes the limit" in done.err) == (2, True)
        (tmp_path / name).unlink()
