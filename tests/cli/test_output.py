"""What strangers wrote cannot command a terminal, the log of CI, a spreadsheet or a forge."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import karat
from factories.commands import karat_here
from factories.repositories import Repository
from karat.cli.goldens.check import identity_of
from karat.cli.output import deliver
from karat.findings import UsageError, fail
from karat.report.github import workflow_commands
from karat.report.terminal import print_lines, say
from karat.report.words import in_a_log

ROOT = Path(karat.__file__).parent
SINKS = {"print", "click.echo", "click.secho", "traceback.print_exception"}
STARTS = ("::error::x", "  ::set-output name=a::b", "\t::add-mask::x", "\u2003::x", "\u00a0::stop-commands::x")
ANYWHERE = ("##[error]x", "a ##vso[task.setvariable variable=PATH]x", "###vso[x]", "##teamcity[x]")
CONTROLS = [chr(n) for n in (*range(0x20), *range(0x7F, 0xA0)) if chr(n) not in "\n\t"]
BIDI = list("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")


def commands(log: str) -> list[str]:
    """What GitHub's runner would obey, which cuts at either line end, and looks behind blanks; Azure's and TeamCity's."""
    return [line for line in re.split(r"[\r\n]", log) if line.lstrip().startswith("::") or re.search(r"##\w*\[", line)]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A diff that says what strangers called things, in every format."""
    made = Repository(tmp_path / "repository")
    text = json.dumps({f"=1+1\u202e{i}": {"values": {"1": 1.0}} for i in range(2)})
    made.write("goldens/::error::x/golden_values.json", text)
    made.write("goldens/@here ##[error]\u009b/golden_values.json", text)
    for name in ("::warning::x", "=x", "+x", "-x", "@x", "\n=x", "\uff1dx"):
        made.write(f"{name}.json", text)
    made.write("karat.toml", '[goldens]\npaths = ["**/*.json"]\n')
    made.commit()
    for path in made.root.rglob("*.json"):
        path.write_text(text.replace("1.0", "9.5"), encoding="utf-8")
    return made


class TestLines:
    @pytest.mark.parametrize("text", [*STARTS, "a\n::error::x", "a\r::error::x", *ANYWHERE])
    @pytest.mark.parametrize("colour", ["", "1"])
    def test_no_line_is_a_command_of_the_log(self, text: str, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORCE_COLOR", colour)
        stream = io.StringIO()
        print_lines([((text, "bold"),), (("", "bold"), (text, ""))], stream)
        say(text, stream)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
        assert commands(plain) == []
        assert len(plain.splitlines()) == 3

    def test_karats_own_annotations_stay(self) -> None:
        made = workflow_commands([fail("value-drift", "a\n::error::b", path="::x")], "karat check")
        assert commands(made) == made.splitlines()
        assert len(made.splitlines()) == 1


class TestReports:
    @pytest.mark.parametrize("start", STARTS)
    def test_a_report_begins_no_line_with_a_command(self, start: str) -> None:
        for report in (f"{start}\nx\n{start}\r{start}", f"<a>\n{start}</a>\n"):
            assert commands(in_a_log(report, escaping=False)) == []
        assert in_a_log("a::b\n", escaping=True) == "a::b\n"

    @pytest.mark.parametrize("one", [*CONTROLS, *BIDI])
    def test_controls_are_escaped_in_every_form(self, one: str) -> None:
        for report in (f'{{"a": "{one}"}}', f"path,{one}x\r\n", f"# {one}y", f"<p>{one}</p>"):
            shown = in_a_log(report, escaping=True)
            assert one not in shown.replace("\r\n", "\n")
            assert one in in_a_log(report, escaping=False)

    @pytest.mark.parametrize("text", ANYWHERE)
    def test_what_is_obeyed_anywhere_in_a_line(self, text: str) -> None:
        for report in (json.dumps({"a": text}), f"<p>{text}</p>", f"path,{text}\r\n"):
            assert commands(in_a_log(report, escaping=True)) == []
        assert json.loads(in_a_log(json.dumps({"a": text}), escaping=True)) == {"a": text}
        made = workflow_commands([fail("value-drift", text, path=text)], "karat check")
        assert "##" not in re.sub(r"##+ ", "", made)

    @pytest.mark.parametrize("sign", ["CI", "TF_BUILD", "JENKINS_URL", "GITHUB_ACTIONS"])
    def test_every_ci_that_karat_knows_is_one(
        self, sign: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        for name in ("CI", "TF_BUILD", "JENKINS_URL", "GITHUB_ACTIONS"):
            monkeypatch.delenv(name, raising=False)
        deliver("-", "a \u202e")
        monkeypatch.setenv(sign, "True")
        deliver("-", "a \u202e")
        assert capfdbinary.readouterr().out == "a \u202ea \\u202e".encode()

    def test_json_and_markup_say_the_same(self) -> None:
        words = "\u202e\u009b ##[x]"
        assert json.loads(in_a_log(json.dumps({"a": words}, ensure_ascii=False), escaping=True)) == {"a": words}
        assert in_a_log(f"<p>{words}</p>", escaping=True) == "<p>&#x202e;&#x9b; &#x23;#[x]</p>"

    def test_for_people(self, repository: Repository) -> None:
        for verb in (("diff",), ("stage",), ("config", "--show-origin", "--metric", "::x")):
            outcome = karat_here(*verb, cwd=repository.root)
            assert outcome.out
            assert commands(outcome.out + outcome.err) == []

    @pytest.mark.parametrize("option", ["--csv", "--json", "--markdown", "--html"])
    def test_of_a_hostile_diff(self, repository: Repository, option: str) -> None:
        outcome = karat_here("diff", option, "-", cwd=repository.root, CI="true")
        assert "1+1" in outcome.out
        assert commands(outcome.out + outcome.err) == []
        assert not re.search("[\u202e\u009b\x1b]", outcome.out + outcome.err)

    def test_on_a_terminal(self, repository: Repository) -> None:
        mine, theirs = pty.openpty()
        command = [sys.executable, "-m", "karat", "diff", "--json", "-"]
        clean = {name: text for name, text in os.environ.items() if name != "CI"}
        place = repository.root
        with subprocess.Popen(command, cwd=place, stdout=theirs, stderr=subprocess.DEVNULL, env=clean):
            os.close(theirs)
            seen = b""
            with contextlib.suppress(OSError):  # how a terminal that is gone answers
                while piece := os.read(mine, 1 << 16):
                    seen += piece
        os.close(mine)
        assert b"\\u202e" in seen
        assert "\u202e".encode() not in seen

    def test_in_a_file_they_stay(self, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        deliver(str(tmp_path / "x"), "::a \u202e")
        assert (tmp_path / "x").read_text(encoding="utf-8") == "::a \u202e"
        deliver("/dev/stdout", "::a\n")
        assert capfdbinary.readouterr().out == b"\\::a\n"


def test_spreadsheets_compute_nothing(repository: Repository) -> None:
    rows = list(csv.DictReader(io.StringIO(karat_here("diff", "--csv", "-", cwd=repository.root).out)))
    assert rows
    for row in rows:
        assert row["metric"].startswith("'=1+1")
        assert not row["file"].startswith(("=", "+", "-", "@", "\n", "\uff1d"))
        assert float(row["avg_rel_diff"]) == -8.5


def test_there_is_one_sink() -> None:
    """Whoever prints goes through the report kit, which knows what a log and a terminal obey."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        if name in {"__main__.py", "report/terminal.py"} or not re.search(r"\bprint\(|echo\(|print_exception", text):
            continue
        calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        found += [
            f"{name}:{call.lineno}: {ast.unparse(call.func)}" for call in calls if ast.unparse(call.func) in SINKS
        ]
    assert found == []


def test_identity_is_key_and_value() -> None:
    assert identity_of(["a=1", "b=x=y", "a=1"]) == {"a": "1", "b": "x=y"}


@pytest.mark.parametrize("words", [["a"], ["=1"], ["a="], ["a-b=1"], ["a=1", "a=2"]])
def test_any_other_identity_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="expected --identity KEY=VALUE"):
        identity_of(words)
