from __future__ import annotations

import pytest
from hypothesis import given, reject, strategies as st

from karat.findings import Severity, UsageError
from karat.goldens import formats
from karat.goldens.shapes import Document, RowKey, Table
from karat.goldens.table_csv import FORMAT, Form, key_columns, read_table

PADDED = "name,accuracy,graph_breaks\n\n\n\nadv,pass,0\n\n\n\nbeit,pass,6\n\n\n\nzoo,fail,2\n"
HEADERLESS = "add_loop,instructions,3070000000,0.1\n\n\n\nsum_loop,instructions,4432000000,0.1\n"

cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6).map(str.strip) | st.sampled_from(
    ["pass", "1.5", "a,b", 'say "x"', "#x", "two\nlines", ""]
)
plain_cells = st.sampled_from(["pass", "fail", "0", "6", "1.50", "", "x y"])


@st.composite
def tables(draw: st.DrawFn, *, values: st.SearchStrategy[str] = cells) -> Table:
    columns = ("name", *draw(st.lists(st.sampled_from(["accuracy", "breaks", "speed"]), unique=True, min_size=1)))
    keys = draw(st.lists(values.filter(bool), unique=True, max_size=5))
    rows: dict[RowKey, RowKey] = {(key,): (key, *(draw(values) for _ in columns[1:])) for key in keys}
    return Table(columns, ("name",), rows)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Tables as they stand in repositories: padded, commented, with either line ending."""
    end = draw(st.sampled_from(["\n", "\r\n"]))
    padding = draw(st.sampled_from([0, 1, 3]))
    names = draw(st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1, max_size=6))
    head = draw(st.sampled_from(["name,accuracy,breaks", "#name,accuracy,breaks"]))
    rows = [head, *(f"{name}, {draw(plain_cells)},{draw(plain_cells)}" for name in names)]
    rows.insert(draw(st.integers(1, len(rows))), "#gone,pass,3")
    return (end * (padding + 1)).join(rows).encode() + draw(st.sampled_from(["", end, end * 4])).encode()


def table(data: bytes) -> Table:
    golden = formats.read(data).golden
    assert isinstance(golden, Table)
    return golden


@given(tables())
def test_what_is_written_is_read_back(golden: Table) -> None:
    try:
        written = formats.write(golden)
    except UsageError:
        reject()
    reading = formats.read(written)
    assert reading.golden == golden
    assert reading.format == "table-csv"


@given(files())
def test_an_unchanged_table_keeps_every_byte(data: bytes) -> None:
    assert formats.write(table(data), like=data) == data


@pytest.mark.slow
@given(files(), tables(values=plain_cells))
def test_what_is_written_over_another_is_read_back(like: bytes, golden: Table) -> None:
    reading = FORMAT.read(FORMAT.write(golden, like=like))
    assert isinstance(reading.golden, Table)
    assert reading.golden.rows == golden.rows
    assert reading.golden.columns == golden.columns


@given(st.integers(0, 2), st.integers(1, 2), st.sampled_from(["pass", "17", "a,b", "longer text"]))
def test_one_new_cell_changes_only_its_token(row: int, column: int, cell: str) -> None:
    golden = table(PADDED.encode())
    rows = dict(golden.rows)
    key = list(rows)[row]
    before = ",".join(rows[key])
    rows[key] = (*rows[key][:column], cell, *rows[key][column + 1 :])
    spelled = [f'"{text}"' if "," in text else text for text in rows[key]]
    written = formats.write(Table(golden.columns, golden.key, rows), like=PADDED.encode()).decode()
    assert written == PADDED.replace(before, ",".join(spelled))


def test_a_header_names_the_columns() -> None:
    golden = table(PADDED.encode())
    assert golden.columns == ("name", "accuracy", "graph_breaks")
    assert golden.key == ("name",)
    assert golden.rows["beit",] == ("beit", "pass", "6")
    assert golden.header


def test_a_table_of_text_has_a_header_too() -> None:
    golden = table(b"name,accuracy\nadv,pass\nbeit,fail\n")
    assert golden.columns == ("name", "accuracy")
    assert list(golden.rows) == [("adv",), ("beit",)]


def test_the_headerless_form_is_known_by_its_cells() -> None:
    golden = table(HEADERLESS.encode())
    assert not golden.header
    assert golden.columns == ("benchmark", "metric", "expected", "noise_margin")
    assert golden.key == ("benchmark", "metric")
    assert golden.rows["add_loop", "instructions"][2] == "3070000000"


def test_other_headerless_tables_have_numbered_columns() -> None:
    golden = table(b"adv,1,2\nbeit,3,4\n")
    assert (golden.columns, golden.key, golden.header) == (("c1", "c2", "c3"), ("c1",), False)


def test_a_commented_header_is_a_header_and_other_comments_are_not_rows() -> None:
    data = b"#name,backend,data_type,target\n#old,inductor,float32,1.0\nadv,inductor,float32,1.4\n"
    golden = table(data)
    assert golden.columns == ("name", "backend", "data_type", "target")
    assert golden.key == ("name", "backend", "data_type")
    assert list(golden.rows) == [("adv", "inductor", "float32")]
    assert golden.header


def test_a_comment_above_a_header_is_no_header() -> None:
    golden = table(b"# accuracy, as measured\nname,accuracy\nadv,0.5\n")
    assert golden.columns == ("name", "accuracy")


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (("name", "accuracy"), ("name",)),
        (("dev", "name", "batch_size", "speedup"), ("dev", "name", "batch_size")),
        (("Model", "Metric", "value"), ("Model", "Metric")),
        (("accuracy", "speed"), ("accuracy",)),
        (("metric", "value"), ("metric",)),
        (("suite", "x", "test", "dtype", "t"), ("suite", "x", "test", "dtype")),
    ],
)
def test_key_columns_are_judged_by_name(columns: tuple[str, ...], key: tuple[str, ...]) -> None:
    assert key_columns(Form(columns, None)) == key


def test_a_key_can_be_given() -> None:
    golden = read_table(b"name,gpu,x\na,1,2\na,2,3\n", key=["name", "gpu"]).golden
    assert isinstance(golden, Table)
    assert golden.key == ("name", "gpu")
    assert list(golden.rows) == [("a", "1"), ("a", "2")]


def test_rows_with_one_key_and_other_cells_are_a_failure() -> None:
    reading = formats.read(b"name,x\na,1\nb,2\na,3\n", "t.csv")
    (finding,) = reading.findings
    assert (finding.kind, finding.severity, finding.path) == ("duplicate-row", Severity.FAIL, "t.csv")
    assert "line 2 and on line 4" in finding.message
    assert isinstance(reading.golden, Table)
    assert reading.golden.rows["a",] == ("a", "1")


def test_rows_that_are_the_same_are_a_warning() -> None:
    (finding,) = formats.read(b"name,x\na,1\na, 1\n").findings
    assert (finding.kind, finding.severity) == ("duplicate-row", Severity.WARN)


def test_ragged_rows_are_named_and_kept() -> None:
    reading = formats.read(b"name,x,y\na,1\nb,1,2,3\nc,1,2\nd,1,2\n")
    assert [(f.kind, f.where) for f in reading.findings] == [("ragged-row", "line 2"), ("ragged-row", "line 3")]
    assert isinstance(reading.golden, Table)
    assert reading.golden.rows["a",] == ("a", "1", "")
    assert reading.golden.rows["b",] == ("b", "1", "2")


def test_lines_are_counted_through_quoted_line_breaks() -> None:
    reading = formats.read(b'name,x\n"a\nb",1\nc\nd,2\n')
    assert [(f.kind, f.where) for f in reading.findings] == [("ragged-row", "line 4")]


def test_a_header_alone_holds_nothing() -> None:
    reading = formats.read(b"name,accuracy\n")
    assert [f.kind for f in reading.findings] == ["empty"]


def test_a_changed_row_is_quoted_where_it_must_be_and_the_others_keep_their_spelling() -> None:
    data = b'name,note,x\n"a","one, two", 1\n"b","say ""hi""", 2\n'
    golden = table(data)
    rows = {**golden.rows, ("a",): ("a", "one, two", "5")}
    assert golden.rows["b",][1] == 'say "hi"'
    written = formats.write(Table(golden.columns, golden.key, rows), like=data)
    assert written == b'name,note,x\na,"one, two",5\n"b","say ""hi""", 2\n'


def test_removed_rows_go_with_their_padding() -> None:
    golden = table(PADDED.encode())
    for key in golden.rows:
        rows = {other: row for other, row in golden.rows.items() if other != key}
        written = formats.write(Table(golden.columns, golden.key, rows), like=PADDED.encode()).decode()
        names = [name for (name,) in rows]
        assert [line.split(",")[0] for line in written.split("\n")[::4]] == ["name", *names]
        assert written.endswith("\n")
        assert not written.endswith("\n\n")


@pytest.mark.parametrize(("name", "line"), [("aaa", 1), ("bbb", 2), ("zzz", 4)])
def test_added_rows_take_the_sorted_place_with_padding(name: str, line: int) -> None:
    golden = table(PADDED.encode())
    rows = {**golden.rows, (name,): (name, "pass", "9")}
    written = formats.write(Table(golden.columns, golden.key, rows), like=PADDED.encode()).decode()
    lines = written.split("\n")
    assert lines[4 * line] == f"{name},pass,9"
    assert len(lines) == len(PADDED.split("\n")) + 4
    assert written.replace(f"{name},pass,9", "").replace("\n", "") == PADDED.replace("\n", "")


def test_added_rows_go_to_the_end_of_an_unsorted_file() -> None:
    data = b"name,x\r\nz,1\r\na,2"
    golden = table(data)
    rows = {**golden.rows, ("m",): ("m", "3")}
    assert formats.write(Table(golden.columns, golden.key, rows), like=data) == b"name,x\r\nz,1\r\na,2\r\nm,3"


def test_a_commented_header_outlives_its_rows() -> None:
    data = b"#name,x\na,2\n"
    written = formats.write(Table(("name", "x"), ("name",), {}), like=data)
    assert written == b"#name,x\n"
    assert [finding.kind for finding in read_table(written).findings] == ["empty"]


def test_comments_stay_where_they_are() -> None:
    data = b"#name,x\n#old,1\na,2\n# note\nb,3\n"
    golden = table(data)
    rows: dict[RowKey, RowKey] = {("b",): ("b", "4")}
    assert formats.write(Table(golden.columns, golden.key, rows), like=data) == b"#name,x\n#old,1\n# note\nb,4\n"


def test_a_new_column_is_added_to_every_row() -> None:
    data = b"name,x\na, 1\nb,2\n"
    new = Table(("name", "x", "y"), ("name",), {("a",): ("a", "1", "9"), ("b",): ("b", "2", "8")})
    assert formats.write(new, like=data) == b"name,x,y\na,1,9\nb,2,8\n"


@pytest.mark.parametrize(
    "data",
    [
        b"just one line of prose\n",
        b"Dear reader, this is a letter, and it has commas in it, you see\nbut no, it is not a table\n",
        b"key: [a, b]\nother: c\n",
        b"{\n 1, 2\n",
        b"name\nadv\n",
    ],
)
def test_other_text_is_not_claimed(data: bytes) -> None:
    assert not FORMAT.claims(data)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match="tables"):
        FORMAT.write(Document(1))


def test_only_comments_are_no_table() -> None:
    reading = read_table(b"# nothing here\n")
    assert (reading.golden, reading.findings[0].kind) == (None, "unreadable")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        ("r{n},1", ["ragged-row"]),
        ("r{n},1,2,3", ["ragged-row"]),
        ("r,1,2", ["duplicate-row"]),
        ("r,1,{n}", ["duplicate-row"]),
        ("r,{n}", ["duplicate-row", "ragged-row"]),
    ],
)
def test_a_hundred_thousand_odd_rows_are_few_findings(row: str, kinds: list[str]) -> None:
    rows = "".join(row.format(n=n) + "\n" for n in range(100_000))
    reading = formats.read(f"name,a,b\n{rows}".encode())
    assert isinstance(reading.golden, Table)
    assert len(reading.findings) == 9 * len(kinds)
    assert sorted({finding.kind for finding in reading.findings}) == kinds
    more = [finding for finding in reading.findings if "more" in finding.numbers]
    assert len(more) == len(kinds)
    assert {finding.where for finding in more} == {"line 100001"}


def test_many_blank_lines_are_kept() -> None:
    data = b"\n" * 20_000 + b"name,a\n" + b"\r\n" * 20_000 + b"x,1\n" + b"\n" * 20_000
    golden = table(data)
    assert golden.rows == {("x",): ("x", "1")}
    assert formats.write(golden, like=data) == data


@pytest.mark.slow
def test_thousands_of_rows_come_to_their_places() -> None:
    like = "name,x\n\n# note\n" + "".join(f"r{2 * n:06},{n}\n\n" for n in range(3_000))
    golden = table(like.encode())
    shuffled = [n * 7 % 6_000 for n in range(6_000)]
    rows: dict[RowKey, RowKey] = {(f"r{n:06}",): (f"r{n:06}", str(n // 2)) for n in shuffled}
    written = formats.write(Table(golden.columns, golden.key, rows), like=like.encode()).decode()
    assert written == "name,x\n\n# note\n" + "".join(f"r{n:06},{n // 2}\n\n" for n in range(6_000))


def test_new_rows_stand_behind_the_row_before_them_whatever_comments_follow() -> None:
    like = b"name,x\n# first\nb,1\n# of b\nd,1\n"
    rows: dict[RowKey, RowKey] = {(name,): (name, "1") for name in ("c", "e", "a", "d", "bb", "b")}
    assert formats.write(Table(("name", "x"), ("name",), rows), like=like) == (
        b"name,x\n# first\na,1\nb,1\nbb,1\nc,1\n# of b\nd,1\ne,1\n"
    )


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("cell", ["", "skip", "n/a"])
def test_one_odd_cell_does_not_change_the_headerless_form(row: int, cell: str) -> None:
    rows = [["add", "count", "3", "0.1"], ["mul", "count", "4", "0.1"], ["sum", "count", "5", "1"]]
    rows[row][2] = cell
    golden = table("".join(",".join(held) + "\n" for held in rows).encode())
    assert golden.columns == ("benchmark", "metric", "expected", "noise_margin")
    assert golden.key == ("benchmark", "metric")
    assert not golden.header
    assert golden.rows[rows[row][0], "count"][2] == cell


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        (b"a,m,,0.1\nb,m,1,0.1\n", "benchmark,metric,expected,noise_margin"),
        (b"a,m,1,0.1\nb,m,1\nc,m,1,2\nd,m,2,2\ne,m,2,2\n", "benchmark,metric,expected,noise_margin"),
        (b"a,m,,0.1\nb,m,,0.1\nc,m,1,2\n", "c1,c2,c3,c4"),
        (b"a,m,,0.1\n", "c1,c2,c3,c4"),
        (b"a,1,2,3\nb,1,2,3\n", "c1,c2,c3,c4"),
        (b"test,metric,value,margin\na,m,1,2\nb,m,1,2\n", "test,metric,value,margin"),
    ],
)
def test_most_rows_decide_on_the_headerless_form(data: bytes, columns: str) -> None:
    assert ",".join(table(data).columns) == columns


@pytest.mark.slow
@given(tables() | tables(values=plain_cells), st.booleans(), st.none() | files())
def test_a_table_is_read_back_or_refused(golden: Table, header: bool, like: bytes | None) -> None:  # noqa: FBT001
    asked = Table(golden.columns, golden.key, golden.rows, header=header)
    try:
        written = FORMAT.write(asked, like)
    except UsageError:
        return
    assert FORMAT.read(written).golden == asked


@pytest.mark.parametrize("like", [None, PADDED.encode(), HEADERLESS.encode()])
@pytest.mark.parametrize(
    "golden",
    [
        Table(("x", "y"), ("x",), {("a",): ("a", "1")}, header=False),
        Table(("name", "1"), ("name",), {("a",): ("a", "1")}),
        Table(("name", "x"), ("name",), {("a",): ("a", " 1")}),
        Table(("name", "x"), ("name",), {("a",): ("b", "1")}),
        Table(("name", "x"), ("name",), {("a",): ("a", "1", "2")}),
        Table(("name", "x"), ("name",), {("a",): ("a", "\0")}),
        Table(("name", "x"), ("name",), {("a",): ("a", "\ud800")}),
        Table(("name",), ("name",), {("a",): ("a",)}),
        Table(("x", "name"), ("y",), {("a",): ("a", "1")}),
    ],
)
def test_what_csv_cannot_hold_is_refused(golden: Table, like: bytes | None) -> None:
    with pytest.raises(UsageError, match=r"table-csv cannot hold this table: expected .*, found "):
        FORMAT.write(golden, like)


def test_an_unusual_key_is_kept_only_by_who_reads_with_it() -> None:
    data = b"name,gpu,x\na,1,2\na,2,3\n"
    golden = read_table(data, key=["name", "gpu"]).golden
    assert isinstance(golden, Table)
    assert FORMAT.write(golden, like=data) == data
    with pytest.raises(UsageError, match="expected key and rows to be read back"):
        FORMAT.write(golden)
