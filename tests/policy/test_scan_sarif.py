"""SARIF 2.1.0, held against what its specification and GitHub's upload ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from msgspec.structs import replace

from karat.findings import Finding, Severity, exit_code, fail
from karat.policy.scan.scanner import ScanReport, sarif_log, scan
from karat.report import sarif

TEXT = """from op_test import OpTest, skip_check_grad_ci


@skip_check_grad_ci()
class A(OpTest):
    def test_check_grad(self):
        pass


class B(A):
    no_need_check_grad = True

    def test_check_output(self):
        self.check_output()


class C(OpTest):
    def test_check_grad(self):
        self.check_grad(["X"], "Out", max_relative_error=0.5)
        self.check_grad(["Y"], "Out", max_relative_error=0.5)
"""


def log(report: ScanReport) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(sarif_log(report, "1.2.3", exit_code(report.findings)))
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_ä b%.py").write_text(TEXT, encoding="utf-8")
    return tmp_path


def test_the_log_has_the_form_of_the_specification(here: Path) -> None:
    made = log(scan(["tests"]))
    assert set(made) == {"$schema", "version", "runs"}
    assert made["version"] == "2.1.0"
    (run,) = made["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("karat policy scan", "1.2.3")
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    for rule in driver["rules"]:
        for part in ("shortDescription", "fullDescription", "help"):
            assert rule[part]["text"].strip()
        assert rule["defaultConfiguration"]["level"] in {"note", "warning", "error"}
    assert run["results"]
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in {"note", "warning", "error"}
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        uri = place["artifactLocation"]["uri"]
        assert place["artifactLocation"]["uriBaseId"] in run["originalUriBaseIds"]
        assert not urlsplit(uri).scheme
        assert uri.isascii()
        assert (here / unquote(uri)).is_file()
    (invocation,) = run["invocations"]
    assert invocation == {"executionSuccessful": True, "exitCode": 1}


def test_levels_are_those_of_findings(here: Path) -> None:
    report = scan([str(here)])
    levels = {"fail": "error", "warn": "warning", "info": "note"}
    results = log(report)["runs"][0]["results"]
    assert [r["level"] for r in results] == [levels[f.severity.value] for f in report.findings]
    assert [r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in results] == [
        f.numbers["line"] for f in report.findings
    ]


def prints(report: ScanReport) -> list[str]:
    results = log(report)["runs"][0]["results"]
    return [r["partialFingerprints"]["karatFinding/v1"] for r in results]


def test_fingerprints_stay_when_lines_move_and_are_all_different(here: Path) -> None:
    file = here / "tests" / "test_ä b%.py"
    before = prints(scan(["tests"]))
    assert len(before) == len(set(before))
    file.write_text("# one\n# two\n\n" + TEXT.replace("\n\n\nclass C", "\n\n\n\n\nclass C"), encoding="utf-8")
    assert prints(scan(["tests"])) == before
    assert prints(scan([str(here)])) == before
    file.write_text(TEXT.replace("class B", "class Bee"), encoding="utf-8")
    changed = prints(scan(["tests"]))
    assert set(changed) != set(before)
    assert len(set(changed) & set(before)) >= len(before) - 2


@pytest.mark.usefixtures("here")
def test_a_file_outside_has_a_whole_uri(tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "test_x.py").write_text(TEXT, encoding="utf-8")
    for result in log(scan([str(other)]))["runs"][0]["results"]:
        artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert artifact == {"uri": f"file://{other}/test_x.py"}


def test_what_could_not_be_verified_is_no_success(here: Path) -> None:
    (here / "none").mkdir()
    (run,) = log(scan(["none"]))["runs"]
    assert run["invocations"][0] == {"executionSuccessful": False, "exitCode": 3}


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_more_findings_than_github_takes_are_cut_gravest_first() -> None:
    report = scan(["tests"])
    crowd = tuple(
        Finding(kind="check-empty", severity=Severity.INFO, message=f"finding {n}", path="x.py") for n in range(26_000)
    )
    many = replace(report, findings=report.findings + crowd)
    (run,) = log(many)["runs"]
    assert len(run["results"]) == 25_000
    assert run["results"][0]["level"] == "error"
    assert "more findings are left out" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_a_name_is_no_link() -> None:
    message = "tests/[x](https://example.invalid)/a.py and b[0] (c)"
    made = sarif.render([fail("grad-failed", message)], sarif.Tool(name="x", version="1"), exit_code=1, properties={})
    (result,) = json.loads(made)["runs"][0]["results"]
    assert result["message"]["text"] == "tests/[x\\](https://example.invalid)/a.py and b[0] (c)"
