from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from karat.findings import CannotVerify, ExitCode, exit_code
from karat.policy.scan.names import Modules
from karat.policy.scan.op_tests import glance, look
from karat.policy.scan.scanner import ScanOptions, ScanReport, find, scan

GOOD = b"from op_test import OpTest\nclass T(OpTest):\n    def test_check_grad(self): self.check_grad(['X'], 'Out')\n"
BAD = GOOD.replace(b"self.check_grad(['X'], 'Out')", b"pass")

WIDE = "".join(chr(ord(c) - ord("!") + 0xFF01) for c in "OpTest")
"""The same identifier to Python, in other letters."""


def names(report: ScanReport) -> list[str]:
    return [f"{f.kind} {Path(f.path).name}" for f in report.findings]


@pytest.mark.slow
def test_one_bad_file_never_loses_the_report(tmp_path: Path) -> None:
    bad = {
        "python2.py": GOOD + b"print 'two'\n",
        "cut.py": GOOD[:-30],
        "null.py": GOOD + b"\0",
        "deep.py": GOOD + b"x = " + b"-" * 100_000 + b"1\n",
        "chain.py": GOOD + b"x = " + b"1+" * 100_000 + b"1\n",
        "latin.py": b"# coding: latin-1\n# \xe9\n" + GOOD,
        "mangled.py": GOOD + b"x = '\xff\xfe'\n",
        "bom.py": b"\xef\xbb\xbf" + GOOD,
        "crlf.py": GOOD.replace(b"\n", b"\r\n"),
        "generated.py": GOOD + b"x = [\n" + b"    1.0, 2.0, 3.0,\n" * 20_000 + b"]\n",
        "empty.py": b"",
        "surrogate.py": GOOD + b"y = '\\ud800'\nT.exist_check_grad = '\\ud800'\n",
        "notes.txt": BAD,
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "folder.py" / "test_in.py").write_bytes(BAD)
    report = scan([str(tmp_path)], ScanOptions(jobs=2))
    unreadable = ["python2.py", "null.py", "deep.py", "chain.py", "mangled.py", "cut.py"]
    assert sorted(names(report)) == sorted(
        [*(f"unreadable {name}" for name in unreadable), "check-empty test_in.py", "flag-by-hand surrogate.py"]
    )
    assert {Path(row.path).name for row in report.op_tests} == {
        "latin.py",
        "bom.py",
        "crlf.py",
        "generated.py",
        "surrogate.py",
        "test_in.py",
    }


def test_an_unreadable_file_that_names_no_op_test_is_not_even_mentioned(tmp_path: Path) -> None:
    (tmp_path / "test_good.py").write_bytes(GOOD)
    (tmp_path / "old.py").write_bytes(b"print 'two'\n")
    assert exit_code(scan([str(tmp_path)]).findings) == ExitCode.OK


def test_links_in_circles_and_links_to_files(tmp_path: Path) -> None:
    inner = tmp_path / "tests"
    inner.mkdir()
    (inner / "real.py").write_bytes(b"from op_test import OpTest\nclass Base(OpTest): pass\n")
    (inner / "alias.py").symlink_to("real.py")
    (inner / "loop").symlink_to(tmp_path)
    (inner / "gone.py").symlink_to("nowhere.py")
    (inner / "self.py").symlink_to("self.py")
    (inner / "test_a.py").write_bytes(b"from alias import Base\nclass T(Base):\n    def test_x(self): pass\n")
    report = scan([str(tmp_path)])
    assert sorted(row.name for row in report.op_tests) == ["Base", "T"]
    assert sorted(names(report)) == ["cannot-read gone.py", "cannot-read self.py", "grad-check-missing test_a.py"]


@pytest.mark.skipif(sys.platform != "linux", reason="a file that nobody, root included, can read from its start")
def test_what_may_not_be_read_is_said_and_is_3(tmp_path: Path) -> None:
    (tmp_path / "test_good.py").write_bytes(GOOD)
    (tmp_path / "test_secret.py").symlink_to("/proc/self/mem")
    report = scan([str(tmp_path)])
    assert (names(report), exit_code(report.findings)) == (["cannot-read test_secret.py"], 3)


def test_a_file_that_goes_away_meanwhile_is_said(tmp_path: Path) -> None:
    found = glance(str(tmp_path / "gone.py"))
    assert found is not None
    assert (found.problem, found.lost) == ("No such file or directory", True)


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / os.fsdecode(b"test_\xff%d.py" % number)).write_bytes(BAD)
    report = scan([str(tmp_path)], ScanOptions(jobs=2))
    assert len(report.op_tests) == 4
    assert all(b"\xff" in os.fsencode(row.path) for row in report.op_tests)


def test_folders_of_tools_are_left_out_and_counted_unless_named(tmp_path: Path) -> None:
    for name in (".git", "build", ".venv", "__pycache__", "tests", "env"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test_x.py").write_bytes(BAD)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    report = scan([str(tmp_path)])
    assert (report.files.found, report.files.folders_left_out) == (1, 5)
    assert scan([str(tmp_path / "build")]).files.found == 1


@pytest.mark.parametrize("glob", ["tests/a", "a", "tests/a/**", "**/test_x.py", "test_x.py"])
def test_exclusions(tmp_path: Path, glob: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tests/a/test_x.py", "tests/b/test_y.py"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(BAD)
    found = find(["."], [glob])
    assert ([Path(shown).name for shown, _ in found.files], found.excluded) == (["test_y.py"], 1)


def test_the_same_file_twice_is_one(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_bytes(BAD)
    report = scan([str(tmp_path), str(tmp_path / "test_x.py")])
    assert (report.files.found, len(report.op_tests), len(report.findings)) == (1, 1, 1)


def test_a_path_without_op_tests_is_3_also_beside_one_with(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "test_x.py").write_bytes(GOOD)
    (tmp_path / "b").mkdir()
    report = scan([str(tmp_path / "a"), str(tmp_path / "b")])
    assert (names(report), exit_code(report.findings)) == (["nothing-compared b"], 3)
    with pytest.raises(CannotVerify, match="found nothing at"):
        scan([str(tmp_path / "c")])


# --- modules ---


def module(files: list[str], name: str, beside: str) -> str | None:
    return Modules([(f, f"/w/{f}") for f in files]).find(name, beside)


@pytest.mark.parametrize(
    ("name", "beside", "found"),
    [
        ("op_test", "legacy/test_a.py", "legacy/op_test.py"),
        ("op_test", "xpu/test_a.py", "xpu/op_test.py"),
        ("op_test", "cinn/ops/test_a.py", "xpu/op_test.py"),
        ("legacy.op_test", "cinn/ops/test_a.py", "legacy/op_test.py"),
        ("paddle.tests.legacy.op_test", "cinn/ops/test_a.py", None),
        ("..legacy.op_test", "xpu/test_a.py", "legacy/op_test.py"),
        (".op_test", "cinn/ops/test_a.py", None),
        (".", "legacy/test_a.py", "legacy/__init__.py"),
        ("legacy", "xpu/test_a.py", "legacy/__init__.py"),
        ("abc", "legacy/test_a.py", None),
        ("abc", "cinn/test_a.py", "cinn/abc.py"),
    ],
)
def test_imports_are_looked_for_nearest_first(name: str, beside: str, found: str | None) -> None:
    files = ["legacy/__init__.py", "legacy/op_test.py", "xpu/op_test.py", "cinn/ops/test_a.py", "cinn/abc.py"]
    assert module([*files, beside], name, beside) == found


# --- the glance ---


@pytest.mark.parametrize(
    "source",
    [
        f"from op_test import {WIDE}\nclass T({WIDE}):\n    def test_x(self): pass\n".encode(),
        b"# coding: utf-7\nfrom +AG8-p_test import +AE8-pTest\nclass T(+AE8-pTest):\n    def test_x(self): pass\n",
    ],
)
def test_names_in_disguise_are_seen(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "test_x.py").write_bytes(source)
    report = scan([str(tmp_path)])
    assert [row.state for row in report.op_tests] == ["unchecked"]


# --- processes ---


def many(folder: Path, count: int) -> list[str]:
    rng = random.Random(3)
    for number in range(count):
        (folder / f"test_{number}.py").write_bytes(rng.choice([GOOD, BAD, b"import test_1\n", b"print 'OpTest'\n"]))
    return sorted(str(path) for path in folder.iterdir())


def test_processes_make_no_difference(tmp_path: Path) -> None:
    paths = many(tmp_path, 40)
    alone = look(paths, glance, jobs=1)
    assert look(paths, glance, jobs=3) == alone
    assert len(alone) == len(paths)


def test_it_works_beside_threads(tmp_path: Path) -> None:
    paths = many(tmp_path, 20)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert look(paths, glance, jobs=2) == look(paths, glance, jobs=1)
    finally:
        stop.set()
        thread.join()


def test_the_scanned_folder_is_not_imported_from(tmp_path: Path) -> None:
    many(tmp_path, 10)
    for name in ("ast", "msgspec", "tokenize", "gc"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('imported')\n")
    code = "from karat.policy.scan.op_tests import glance, look; import sys; print(sum(g is None or not g.lost for g in look(sys.argv[1:], glance, jobs=2)))"
    paths = [str(p) for p in sorted(tmp_path.glob("test_*.py"))]
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code, *paths], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "10\n"


def test_a_package_is_known_by_its_own_name_wherever_the_scan_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("from op_test import OpTest as Base\n")
    for name, module in (("A", "pkg"), ("B", "."), ("C", "..pkg")):
        body = f"from {module} import Base\n\n\nclass {name}(Base):\n    def test_x(self): pass\n"
        (folder / f"test_{name.lower()}.py").write_text(body)
    monkeypatch.chdir(folder)
    assert {row.name for row in scan(["."], ScanOptions(jobs=1)).op_tests} == {"A", "B", "C"}
