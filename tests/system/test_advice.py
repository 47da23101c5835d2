"""Advice that is pasted into a shell runs what it says, whatever a stranger has called a file, a server or a commit."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

import karat
from factories.client_servers import Servers
from factories.commands import karat_here
from factories.http_host import Response
from factories.repositories import Repository
from karat.findings import CannotVerify, KaratError
from karat.goldens.paths import walk
from karat.goldens.provenance import read_record, record_path
from karat.hunts.model import Point
from karat.hunts.report.reproduce import reproduce_script
from karat.hunts.settings import HuntSettings
from karat.net.package_index import IndexAddress, files
from karat.system.git import only_writer
from karat.system.locks import take

ROOT = Path(karat.__file__).parent
ADVICE = {"next", "next_command", "look", "remake", "again", "login", "advice"}
"""Keywords that take a command for the reader."""
KEPT = {"then", "following", "fetch", "edit", "command", "instead", *ADVICE} - {"next", "look"}
"""Names of variables that hold one before it is given."""
QUOTING = {"Command", "NextCommand", "quoted", "_quoted", "plus", "_word", "_glab"}
PROGRAM = re.compile(
    r"(karat|git|ls|cat|curl|gh|glab|df|unset|export|python|pytest|pip|uv|edit|sed|ray|podman|docker|chmod|mv|cp|aws|gsutil"
    r"|gcloud|az|tail|head|sqlite3|readlink|ssh-keygen|cd|touch|mkdir) (?!could not|did not)"
)
PYTHON = {"optests"}
"""Rooms whose advice is Python for an editor."""
NOT_ADVICE = {
    "system/git.py": "messages about git's own commands",
    "__main__.py": "the version",
    "hunts/report/reproduce.py": "put together of words that are quoted; tests/hunts/test_shell_words.py runs them",
}


def bare(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Advice into which a value goes as it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in ADVICE:
                    yield from loose(keyword.value)
        elif isinstance(node, ast.Assign):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            names |= {target.attr.strip("_") for target in node.targets if isinstance(target, ast.Attribute)}
            if names & KEPT:
                yield from loose(node.value)
        elif isinstance(node, ast.JoinedStr) and node.values and PROGRAM.match(ast.unparse(node)[2:]):
            yield from loose(node)


def loose(node: ast.expr) -> Iterator[tuple[int, str]]:
    """F-strings, sums, formats and joins outside of what quotes."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in QUOTING:
            return
        if name == "format" or (name == "join" and isinstance(node.func, ast.Attribute)):
            yield node.lineno, ast.unparse(node)
            return
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            if isinstance(part, ast.FormattedValue) and not is_quoted(part.value):
                yield node.lineno, ast.unparse(node)
                return
        return
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        pieces = [one for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if pieces:
            yield node.lineno, ast.unparse(node)
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from loose(child)


def is_quoted(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name in QUOTING
    if isinstance(value, ast.IfExp):
        return all(isinstance(one, ast.Constant) or is_quoted(one) for one in (value.body, value.orelse))
    if isinstance(value, ast.Attribute):
        return value.attr == "line"  # a number
    # A constant of the module: karat's own words.
    return isinstance(value, ast.Name) and (value.id == "line" or value.id.isupper())


@cache
def trees() -> dict[str, ast.Module]:
    paths = sorted(ROOT.rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@pytest.mark.slow
def test_no_advice_has_a_bare_value() -> None:
    found = []
    for name, tree in trees().items():
        if name not in NOT_ADVICE and name.partition("/")[0] not in PYTHON:
            found += [f"{name}:{line}: {text}" for line, text in bare(tree)]
    assert sorted(set(found)) == []


@pytest.mark.parametrize(
    "source",
    [
        "UsageError(said, next_command=f'x {a}')",
        "fail(kind, text, next='x ' + a)",
        "then = 'x {}'.format(a)",
        "f'ls {a}'",
    ],
)
def test_bare_values_are_found(source: str) -> None:
    assert list(bare(ast.parse(source)))


@pytest.mark.slow
def test_no_advice_deletes() -> None:
    found = []
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Command":
                words = [one.value for one in node.args if isinstance(one, ast.Constant)]
                found += [f"{name}:{node.lineno}"] if {"rm", "clean"} & {*words} else []
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found += [f"{name}:{node.lineno}"] if re.match(r"(git )?rm |git clean ", node.value) else []
    assert found == []


HOSTILE = "$(touch${IFS}PWNED)"
CUT = '{"loss": {"values": {"1": 1.0, "2"'


@pytest.fixture
def pasted(tmp_path: Path) -> Callable[[str], None]:
    """Runs a line as if it were pasted, where `touch` and git are all there is; nothing that it names may run."""
    place, programs = tmp_path / "pasted here", tmp_path / "programs"
    place.mkdir()
    programs.mkdir()
    (programs / "touch").symlink_to(shutil.which("touch") or "/usr/bin/touch")

    def paste(line: str) -> None:
        bash = shutil.which("bash") or "/bin/bash"
        subprocess.run([bash, "-c", line], cwd=place, env={"PATH": str(programs)}, capture_output=True, check=False)
        assert list(place.iterdir()) == [], line

    with pytest.raises(AssertionError):
        paste(f"ls goldens/{HOSTILE}")  # as it was
    (place / "PWNED").unlink()
    return paste


def advised(line: str) -> list[str]:
    return re.findall(r"next: (.*)", line)


def test_what_stage_advises_about_a_hostile_folder(tmp_path: Path, pasted: Callable[[str], None]) -> None:
    repository = Repository(tmp_path / "repository")
    repository.write(f"goldens/{HOSTILE}/kept/golden_values.json", '{"loss": {"values": {"1": 1.0}}}')
    repository.commit()
    repository.write(f"goldens/{HOSTILE}/kept/golden_values.json", '{"loss": {"values": {"1": "nan"}}}')
    repository.write(f"goldens/{HOSTILE}/new/golden_values.json", CUT)
    lines = []
    for verb in ("stage", "diff"):
        outcome = karat_here(verb, cwd=repository.root)
        assert outcome.code == 1
        lines += advised(outcome.out + outcome.err)
    assert len(lines) >= 4
    for line in lines:
        pasted(line)


def test_what_a_stash_takes_away_it_gives_back(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.commit()
    repository.git("config", "user.name", "t")
    repository.git("config", "user.email", "t@example.invalid")
    golden = repository.write("goldens/a b/golden_values.json", CUT)
    for staged in (False, True):
        if staged:
            repository.git("add", "--all")
        line = next(line for line in advised(karat_here("diff", cwd=tmp_path).out) if "stash" in line)
        subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True, capture_output=True)
        assert not golden.exists()
        repository.git("stash", "pop")
        assert golden.read_text(encoding="utf-8") == CUT


def test_a_log_that_is_called_like_a_command(tmp_path: Path, pasted: Callable[[str], None]) -> None:
    for day in range(1, 10):
        (tmp_path / f"run 2026-01-{day:02}.log").write_text(f"loss: 1.{day}\n", encoding="utf-8")
    for day in range(10, 14):
        (tmp_path / f"karat hunt show {HOSTILE} 2026-01-{day}.log").write_text("ValueError: no\n", encoding="utf-8")
    (line,) = advised(karat_here("changes", "--logs", "*.log", "--metric", "loss: ([0-9.]+)", cwd=tmp_path).err)
    assert line.startswith("tail -n 40 ")
    pasted(line)


def a_folder_that_cannot_be_listed(place: Path) -> None:
    list(walk(place / "gone"))


def no_place_for_the_lock(place: Path) -> None:
    repository = Repository(place)
    repository.write(".git/karat", "a file")
    with only_writer(place):
        pass


def no_place_for_a_lock(place: Path) -> None:
    place.write_text("a file", encoding="utf-8")
    take(place / "below" / "lock")


def a_damaged_record(place: Path) -> None:
    Repository(place)
    record_path(place).parent.mkdir()
    record_path(place).write_text("no JSON", encoding="utf-8")
    read_record(place)


@pytest.mark.parametrize(
    "trouble", [a_folder_that_cannot_be_listed, no_place_for_the_lock, no_place_for_a_lock, a_damaged_record]
)
def test_where_files_cannot_be_had(
    trouble: Callable[[Path], None], tmp_path: Path, pasted: Callable[[str], None]
) -> None:
    with pytest.raises(KaratError) as caught:
        trouble(tmp_path / HOSTILE)
    assert HOSTILE in caught.value.next_command
    pasted(caught.value.next_command)


def test_an_address_that_a_server_redirects_to(pasted: Callable[[str], None]) -> None:
    servers = Servers()
    there = "/$(touch$IFS./PWNED)/"
    servers.put("/simple/x/", Response(status=302, headers={"Location": there}))
    servers.put(there, Response(status=403))
    try:
        with pytest.raises(CannotVerify) as caught:
            files(IndexAddress(url=f"{servers.api.url}/simple", origin="hunt.toml"), "x")
    finally:
        servers.stop()
    assert "touch" in caught.value.next_command
    pasted(caught.value.next_command)


def test_what_a_journal_calls_a_commit_and_a_variable(pasted: Callable[[str], None]) -> None:
    probe = {"command": ["true"], "env": {"A": HOSTILE, f"B{HOSTILE}": "1", f"TOKEN{HOSTILE}": "1"}}
    tables = {"stages": ["commits"], "repositories": [{"name": "code", "url": "."}], "probe": probe}
    settings = msgspec.convert(tables, HuntSettings)
    line = reproduce_script(settings, "commits", Point(id="p", label="p", parts={"code": HOSTILE}), {})
    assert HOSTILE in line
    # All steps, whatever the first ones end with.
    pasted("\n".join(step for step in line.split("\n")[3:] if not step.startswith("cd ")))
