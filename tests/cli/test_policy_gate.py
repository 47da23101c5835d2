from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from factories.commands import Outcome, karat
from factories.evidence import collected, evidence, journal, op_test, outcome
from karat.schemas import schema

ENTRY = """
[[exemption]]
op = "tanh"
kind = "special"
reason = "its kernel is that of a library we cannot change"
owner = "@alice"
issue = "https://example.org/issues/1"
expires = 2027-01-31
"""


def gate(where: Path, *words: str, **environment: str) -> tuple[Outcome, Any]:
    result = karat("policy", "gate", *words, "--json", "g.json", cwd=where, **environment)
    if result.code == 2:
        return result, None
    report = json.loads((where / "g.json").read_bytes())
    jsonschema.validate(report, schema("karat.policy-gate/1"))
    assert report["exit_code"] == result.code
    return result, report


def test_evidence_for_all_is_0(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test(evidence()))
    result, _ = gate(tmp_path, "evidence")
    assert (result.code, result.err) == (0, "")
    assert result.out == "gate passed: 1 op test: 1 with evidence; 1 comparison in 1 journal of 1 session\n"


def test_op_tests_of_integers_are_not_counted_as_evidence(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test(inputs={"Ids": "int8"}))
    result, _ = gate(tmp_path, "evidence")
    assert result.code == 0
    assert "1 op test: 0 with evidence, 1 without floating-point inputs; 0 comparisons" in result.out


def test_the_entry_for_a_tolerance_says_what_a_tolerance_needs(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test(evidence(widened=0.1)))
    result, _ = gate(tmp_path, "evidence")
    assert result.code == 1
    assert 'rule = "tolerance"\n  kind = "special"\n  reason = "why it is needed"' in result.out


def test_what_lacks_evidence_is_1_with_three_ways_out(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test())
    result, report = gate(tmp_path, "evidence")
    assert result.code == 1
    assert "fail  evidence-missing: tests/test_ops.py::TestTanh (op tanh): " in result.out
    for way in ("1. TestTanh tests an operator", "2. TestTanh tests a Python API", "3. there is a special reason"):
        assert way in result.out
    assert 'scope = "tests/test_ops.py::TestTanh"' in result.out
    assert result.err == "next: pytest tests/test_ops.py::TestTanh --karat-policy\n"
    assert report["tests"][0]["needs"][0]["state"] == "missing"


def test_no_journal_is_3(tmp_path: Path) -> None:
    result, _ = gate(tmp_path, "evidence")
    assert result.code == 3
    assert "found no such folder" in result.out
    assert result.err == "next: pytest --karat-evidence=evidence\n"


def test_a_journal_of_no_test_is_3(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", [])
    result, _ = gate(tmp_path, "evidence")
    assert (result.code, "no test was run" in result.out) == (3, True)


def test_the_folder_may_stand_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "karat.toml").write_text('[policy]\nevidence = "somewhere"\n')
    journal(tmp_path / "somewhere", op_test(evidence()))
    assert gate(tmp_path)[0].code == 0
    below = tmp_path / "below"
    below.mkdir()
    assert gate(below)[0].code == 0


def test_several_folders_are_one_suite(tmp_path: Path) -> None:
    half = collected(selected=1, deselected=1)
    journal(tmp_path / "1", [*op_test(evidence())[1:3], half, outcome("a")], session="a")
    journal(tmp_path / "2", [half, outcome("b")], session="b")
    assert gate(tmp_path, "1", "--complete")[0].code == 0  # evidence is there, whatever else was not run
    result, report = gate(tmp_path, "1", "2", "--complete")
    assert (result.code, report["sessions"], report["complete"]) == (0, 2, True)


@pytest.mark.slow
def test_exemptions_are_found_beside_the_configuration(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test(skip_reason="a good one"))
    (tmp_path / "exemptions.toml").write_text(ENTRY)
    result, _ = gate(tmp_path, "evidence", KARAT_TODAY="2026-11-15")
    assert result.code == 0
    assert "info  exempted: exemptions.toml:2 (op tanh, gradient, special, @alice): covers" in result.out
    late, _ = gate(tmp_path, "evidence", KARAT_TODAY="2027-02-01")
    assert (late.code, "expired on 2027-01-31" in late.out) == (1, True)
    assert late.err == "next: edit exemptions.toml  # line 2\n" or "next: " in late.err


@pytest.mark.slow
def test_github_shows_it_beside_the_code(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test(line=7))
    annotation = "::error file=tests/test_ops.py,line=7,title=karat policy gate%3A evidence-missing::"
    shown, _ = gate(tmp_path, "evidence", GITHUB_ACTIONS="true")
    assert sum(line.startswith(annotation) for line in shown.out.splitlines()) == 1
    for words, variables in (((), {}), (("--no-github",), {"GITHUB_ACTIONS": "true"})):
        assert "::error" not in gate(tmp_path, "evidence", *words, **variables)[0].out
    aside = karat("policy", "gate", "evidence", "--json", "-", "--github", cwd=tmp_path)
    assert (json.loads(aside.out)["exit_code"], annotation in aside.err) == (1, True)


@pytest.mark.slow
def test_a_clock_that_was_set_is_seen(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test())
    last, _ = gate(tmp_path, "evidence", KARAT_TODAY="2020-02-29")
    assert last.out.rstrip().endswith("; as of 2020-02-29")
    assert "as of" not in gate(tmp_path, "evidence")[0].out
    furthest, _ = gate(tmp_path, "evidence", KARAT_TODAY="9999-12-31")
    assert (furthest.code, "expires = 9999-12-31" in furthest.out) == (1, True)
    wrong, _ = gate(tmp_path, "evidence", KARAT_TODAY="soon")
    assert (wrong.code, "KARAT_TODAY: expected a day" in wrong.err) == (2, True)


def test_a_device_may_be_asked_for(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test(evidence()))
    assert gate(tmp_path, "evidence", "--device", "cpu")[0].code == 0
    assert "for X on cuda" in gate(tmp_path, "evidence", "--device", "cuda")[0].out


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A project with three operators, of which tanh has evidence."""
    (tmp_path / "shoplib").mkdir()
    (tmp_path / "shoplib" / "__init__.py").write_text("")
    (tmp_path / "shoplib" / "ops.py").write_text("def tanh(x): ...\ndef relu(x): ...\ndef gelu(x): ...\n")
    (tmp_path / "karat.toml").write_text('[policy]\nnamespaces = ["shoplib.ops"]\n')
    journal(tmp_path / "evidence", op_test(evidence()))
    return tmp_path


@pytest.mark.slow
def test_new_operators_are_judged_in_a_whole_suite(library: Path) -> None:
    assert gate(library, "evidence")[0].code == 0
    result, report = gate(library, "evidence", "--complete")
    assert (result.code, report["ops"]) == (1, 3)
    assert [f["metric"] for f in report["findings"]] == ["shoplib.ops.gelu", "shoplib.ops.relu"]


def test_the_command_to_add_to_the_baseline_keeps_its_options(library: Path) -> None:
    words = ("evidence", "--add-to-baseline", "shoplib.ops.relu", "--device", "cpu")
    refused, _ = gate(library, *words)
    assert refused.code == 2
    assert refused.err.splitlines()[-1] == ("next: karat policy gate evidence --device cpu --json g.json --complete")


@pytest.mark.slow
def test_the_baseline_grows_by_hand_and_shrinks_by_itself(library: Path) -> None:
    baseline = library / "policy-baseline.json"
    words = ("evidence", "--complete")
    refused, _ = gate(library, *words, "--add-to-baseline", "shoplib.ops.*", CI="true")
    assert (refused.code, baseline.exists()) == (2, False)
    assert "is refused in CI" in refused.err
    unknown, _ = gate(library, *words, "--add-to-baseline", "shoplib.ops.tanh")
    assert (unknown.code, baseline.exists()) == (2, False)
    # CI=false is no CI.
    assert gate(library, *words, "--add-to-baseline", "shoplib.ops.*", CI="false")[0].code == 0
    assert list(json.loads(baseline.read_bytes())) == ["shoplib.ops.gelu", "shoplib.ops.relu", "schema"]

    test = "t.py::TestRelu"
    journal(library / "evidence", op_test(evidence(op="relu", test=test), op="relu", test=test), session="s2")
    stale, _ = gate(library, *words)
    assert stale.code == 1
    assert "shoplib.ops.relu is listed as lacking evidence, but it has gradient evidence now" in stale.out
    assert stale.err.endswith("--update-baseline\n")
    assert gate(library, *words, "--update-baseline")[0].code == 0
    assert list(json.loads(baseline.read_bytes())) == ["shoplib.ops.gelu", "schema"]


def test_updating_adds_nothing(library: Path) -> None:
    assert gate(library, "evidence", "--complete", "--update-baseline")[0].code == 1
    assert not (library / "policy-baseline.json").exists()


def test_adding_needs_the_whole_suite(library: Path) -> None:
    result, _ = gate(library, "evidence", "--add-to-baseline", "*")
    assert (result.code, "needs --complete" in result.err) == (2, True)


def test_a_namespace_that_cannot_be_imported_is_3(library: Path) -> None:
    (library / "shoplib" / "ops.py").write_text("import nothing_of_the_kind\n")
    result, _ = gate(library, "evidence", "--complete")
    assert result.code == 3
    assert "the namespace shoplib.ops cannot be read: ModuleNotFoundError" in result.out


def test_a_configuration_alone_imports_nothing(library: Path) -> None:
    (library / "shoplib" / "ops.py").write_text("open('PWNED', 'w')\ndef tanh(x): ...\n")
    (library / "karat.toml").write_text('[policy]\nnamespaces = ["shoplib.ops"]\ncomplete = true\n')
    refused = karat("policy", "gate", "evidence", cwd=library)
    assert refused.code == 2
    assert f"that imports shoplib.ops (found from {library})" in refused.err
    assert refused.err.splitlines()[-1] == "next: karat policy gate evidence --complete"
    assert gate(library, "evidence", "--partial")[0].code == 0
    assert not (library / "PWNED").exists()
    asked, _ = gate(library, "evidence", "--complete")
    assert (asked.code, asked.err) == (0, f"karat: importing shoplib.ops (found from {library})\n")
    assert (library / "PWNED").exists()


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    name = "t.py::\x1b[31mT$(reboot)\n##[error]"
    journal(tmp_path / "evidence", op_test(test=name))
    result, report = gate(tmp_path, "evidence")
    assert result.code == 1
    assert "\x1b" not in result.out + result.err
    assert "##[error]" not in result.out + result.err
    assert result.err.count("\n") == 1
    assert "'" in report["findings"][0]["next"]


def test_json_to_stdout_is_json_alone(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test())
    result = karat("policy", "gate", "evidence", "--json", "-", cwd=tmp_path)
    assert json.loads(result.out)["schema"] == "karat.policy-gate/1"


def test_quiet_is_quiet(tmp_path: Path) -> None:
    journal(tmp_path / "evidence", op_test())
    result = karat("policy", "gate", "evidence", "-q", cwd=tmp_path)
    assert (result.code, result.out, result.err) == (1, "", "")
