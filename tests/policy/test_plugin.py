"""The plugin in real sessions of pytest: what it costs, what it records, what it judges."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from factories.pytest_runs import Suite
from karat.policy.evidence import KnownTest, merge
from karat.policy.journal import read_journal

OPS = """
import os

import numpy as np
import pytest

import karat


def right(inputs, outputs, cotangents):
    return (cotangents[0] * (1 - np.tanh(inputs[0]) ** 2),)


class TestTanh(karat.OpTest):
    framework = "numpy"
    backward = staticmethod(right)

    def setUp(self):
        self.op_type, self.python_api = "tanh", np.tanh
        x = np.random.rand(3)
        self.inputs, self.outputs = {"X": x}, {"Out": np.tanh(x)}

    def test_check_output(self):
        self.check_output()

    def test_check_grad(self):
        self.check_grad(["X"], "Out")


class TestOther(TestTanh):
    def test_check_grad(self):
        assert "FAIL" not in os.environ
"""
NO_GRADIENT = """
[[exemption]]
op = "sign"
kind = "no-grad-op"
reason = "jumps, and is flat everywhere else"
owner = "@alice"
"""
PLAIN = """
def test_plain():
    assert 1 + 1 == 2
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    made = Suite(tmp_path / "a suite")
    made.write("test_ops.py", OPS)
    made.write("test_plain.py", PLAIN)
    return made


def evidence(suite: Suite) -> dict[str, KnownTest]:
    merged = merge([suite.root / "evidence"])
    assert merged.findings == ()
    return merged.tests


def test_who_did_not_ask_pays_nothing(suite: Suite) -> None:
    suite.write(
        "test_light.py",
        """
        import sys

        def test_light():
            assert "karat.policy.plugin" in sys.modules
            assert not {"karat.policy.session", "karat.config", "karat.gradients", "msgspec"} & set(sys.modules)
        """,
    )
    ran = suite.run("test_light.py")
    assert ran.code == 0, ran.out


@pytest.mark.slow
def test_evidence_is_of_the_class_that_ran(suite: Suite) -> None:
    assert suite.run("--karat-evidence", "evidence").code == 0
    known = evidence(suite)
    assert [len(known[f"test_ops.py::{name}"].evidence) for name in ("TestTanh", "TestOther")] == [1, 0]
    assert "test_plain.py::test_plain" not in known


@pytest.mark.slow
def test_the_environment_may_ask_as_well(suite: Suite) -> None:
    assert suite.run("test_ops.py", KARAT_EVIDENCE="evidence").code == 0
    assert evidence(suite)["test_ops.py::TestTanh"].is_whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("-k", "TestTanh"),
        ("-k", "check_output"),
        ("test_ops.py::TestTanh",),
        ("test_ops.py::TestOther::test_check_output",),
        ("test_plain.py",),
        ("--deselect", "test_ops.py::TestOther::test_check_grad"),
        ("-m", "slow"),
    ],
    ids=" ".join,
)
def test_what_was_not_selected_is_not_judged(suite: Suite, words: tuple[str, ...]) -> None:
    ran = suite.run(*words, "--karat-policy", "-W", "ignore")
    assert ran.code in {0, 5}, ran.out
    assert "fail  " not in ran.out


@pytest.mark.slow
def test_a_session_that_stopped_early_is_not_judged_beyond(suite: Suite) -> None:
    suite.write("test_a_first.py", "def test_wrong():\n    assert False\n")
    ran = suite.run("-x", "--karat-policy")
    assert ran.code in {1, 2}
    assert "fail  " not in ran.out
    assert "not-selected" in ran.out


@pytest.mark.slow
def test_last_failed_is_a_part(suite: Suite) -> None:
    suite.write("pytest.ini", "[pytest]\n")
    assert suite.run("test_ops.py", FAIL="1").code == 1
    ran = suite.run("--lf", "--karat-policy")
    assert ran.count("passed") == 1, ran.out
    assert ran.code == 0, ran.out


@pytest.mark.slow
def test_all_of_it_is_judged(suite: Suite) -> None:
    ran = suite.run("--karat-policy")
    assert ran.code == 1
    assert "evidence-missing: test_ops.py::TestOther (op tanh): no gradient evidence" in ran.out
    assert "1. TestOther tests an operator" in ran.out
    assert "next: pytest test_ops.py::TestOther --karat-policy" in ran.out


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_said_before_any_test_runs(suite: Suite) -> None:
    ran = suite.run("--karat-evidence", "test_plain.py/evidence")
    assert ran.code == 4
    assert "ERROR: cannot write evidence to " in ran.out
    assert "next: pytest --karat-evidence=DIR" in ran.out
    assert "Traceback" not in ran.out


@pytest.mark.slow
def test_files_that_cannot_be_collected_are_not_passed_over(suite: Suite) -> None:
    suite.write("test_broken.py", "import no_such_module")
    words = ("--karat-evidence", "evidence", "--continue-on-collection-errors")
    assert suite.run(*words).code == 1
    (finding,) = merge([suite.root / "evidence"]).findings
    assert finding.kind == "evidence-damaged"
    assert "test_broken.py could not be collected" in finding.message


@pytest.mark.slow
def test_a_session_that_is_interrupted_while_it_collects_says_so(suite: Suite) -> None:
    suite.write("test_z_last.py", "raise KeyboardInterrupt")
    assert suite.run("--karat-evidence", "evidence").code == 2
    (finding,) = merge([suite.root / "evidence"]).findings
    assert "it ended while tests were being collected" in finding.message


@pytest.mark.slow
def test_what_other_plugins_try_again_is_judged_by_its_end(suite: Suite) -> None:
    suite.write(
        "conftest.py",
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            first, *_ = runtestprotocol(item, nextitem=nextitem, log=False)
            first.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=first)
            runtestprotocol(item, nextitem=nextitem)
            return True
        """,
    )
    ran = suite.run("--karat-policy", "-k", "TestTanh")
    assert ran.code == 0, ran.out


@pytest.mark.slow
def test_the_suite_says_where_in_its_repository_it_lies(suite: Suite) -> None:
    (suite.root.parent / ".git").mkdir()
    assert suite.run("test_plain.py", "--karat-evidence", "evidence").code == 0
    (path,) = (suite.root / "evidence").iterdir()
    began = read_journal(path).began
    assert began is not None
    assert began.root == "a suite"


@pytest.mark.slow
def test_listing_leaves_nothing(suite: Suite) -> None:
    assert suite.run("--collect-only", "--karat-evidence", "evidence").code == 0
    assert not (suite.root / "evidence").exists()


@pytest.mark.slow
def test_no_temporary_folder_is_left(suite: Suite, tmp_path: Path) -> None:
    room = tmp_path / "tmp"
    room.mkdir()
    suite.run("-k", "TestTanh", "--karat-policy", TMPDIR=str(room))
    assert list(room.glob("karat-*")) == []


@pytest.mark.slow
def test_workers_are_merged(suite: Suite) -> None:
    ran = suite.run("-n", "2", "--karat-evidence", "evidence", "--karat-policy")
    assert ran.code == 1, ran.out
    assert "evidence-missing: test_ops.py::TestOther" in ran.out
    assert "TestTanh (op" not in ran.out
    known = evidence(suite)
    assert known["test_ops.py::TestTanh"].is_whole
    assert known["test_ops.py::TestOther"].is_whole


@pytest.mark.slow
def test_a_worker_that_dies_is_not_forgotten(suite: Suite) -> None:
    suite.write(
        "test_dies.py", OPS.replace('assert "FAIL" not in os.environ', "os._exit(3)").replace("TestTanh", "TestD")
    )
    ran = suite.run("-n", "1", "test_dies.py", "--karat-policy", "--karat-evidence", "evidence")
    assert ran.code == 1, ran.out
    assert "evidence-damaged" in ran.out
    assert "no gradient evidence in float64 for X; test_check_grad failed: worker 'gw0' crashed" in ran.out


@pytest.mark.slow
def test_a_full_folder_of_an_earlier_run_does_no_harm(suite: Suite) -> None:
    words = ("--karat-evidence", "evidence", "-k", "TestTanh", "--karat-policy")
    assert suite.run(*words).code == 0
    text = (suite.root / "test_ops.py").read_text()
    suite.write("test_ops.py", text.replace('self.check_grad(["X"], "Out")', "pass"))
    ran = suite.run(*words)
    assert ran.code == 1
    assert merge([suite.root / "evidence"]).tests["test_ops.py::TestTanh"].evidence == ()


@pytest.mark.slow
def test_replays_are_told_through_the_environment(suite: Suite) -> None:
    suite.write(
        "test_replay.py",
        """
        import os

        def test_replay():
            assert os.environ["KARAT_GRAD_SEED"] == "7"
        """,
    )
    words = ("--karat-grad-seed", "7")
    assert suite.run("test_replay.py", *words).code == 0
    assert suite.run("test_replay.py", *words, "-n", "1").code == 0


@pytest.mark.slow
def test_each_op_of_a_class_of_specs_is_a_test_of_its_own(suite: Suite) -> None:
    suite.write(
        "test_specs.py",
        """
        import numpy as np

        from karat.optests.op_spec import OpSample, OpSpec
        from karat.optests.op_spec import op_tests


        def samples(dtype, device, rng):
            return [OpSample(inputs=(rng.standard_normal(3),))]


        def of_tanh(inputs, outputs, cotangents):
            return (cotangents[0] * (1 - np.tanh(inputs[0]) ** 2),)


        def of_sign(inputs, outputs, cotangents):
            return (np.zeros(3),)


        common = {"samples": samples, "framework": "numpy"}
        TestOps = op_tests([
            OpSpec(op="tanh", fn=np.tanh, backward=of_tanh, **common),
            OpSpec(op="sign", fn=lambda x: np.sign(x).astype(int), backward=of_sign, **common),
            OpSpec(op="sin", fn=np.sin, backward=of_tanh, devices=("cuda",), **common),
        ])
        """,
    )
    suite.write("exemptions.toml", NO_GRADIENT)
    ran = suite.run("test_specs.py", "--karat-evidence", "evidence", "--karat-policy")
    known = evidence(suite)
    assert known["test_specs.py::TestOps[tanh]"].evidence != (), ran.out
    assert ran.code == 1
    assert "test_specs.py::TestOps[sin] (op sin): no gradient evidence in float64" in ran.out
    assert "nothing was compared" in ran.out
    assert "covers test_specs.py::TestOps[sign]" in ran.out
    assert ran.out.count("fail  ") == 1  # that sign has no gradient was asked
    assert suite.run("test_specs.py", "-k", "tanh", "--karat-policy").code == 0


@pytest.mark.slow
def test_a_configuration_in_error_is_said(suite: Suite) -> None:
    suite.write("karat.toml", "[policy]\nexemption = 'x'\n")
    ran = suite.run("-k", "TestTanh", "--karat-policy")
    assert ran.code == 1
    assert "unknown key 'exemption'; did you mean 'exemptions'?" in ran.out


@pytest.mark.slow
def test_a_suite_that_says_it_is_whole_is_judged_whole_if_nothing_narrowed_it(suite: Suite) -> None:
    suite.write("smalllib.py", "from numpy import tanh\n__all__ = ['tanh', 'cosh']\ndef cosh(x): ...\n")
    suite.write("karat.toml", "[policy]\nnamespaces = ['smalllib']\ncomplete = true\n")
    suite.write("test_ops.py", OPS.partition("class TestOther")[0])
    part = suite.run("-k", "TestTanh", "--karat-policy")
    assert part.code == 0, part.out
    whole = suite.run("--karat-policy")
    assert whole.code == 1
    assert "new-op: smalllib.cosh" in whole.out
    suite.write("below/test_below.py", OPS.partition("class TestOther")[0])
    below = "import os, sys, pytest; os.chdir('below'); sys.exit(pytest.main(['--karat-policy']))"
    part = suite.python("-c", below)
    assert part.code == 0, part.out
    assert "smalllib.tanh" not in whole.out


SAID = """
import unittest

import numpy as np

import karat

X = np.linspace(0.1, 1.0, 6)


def wrong():
    return karat.gradcheck(np.tanh, (X,), op="tanh", backward=lambda i, o, c: (2 * c[0] * (1 - o[0] ** 2),))


def test_assert():
    assert wrong()


class TestCase(unittest.TestCase):
    def test_true(self):
        self.assertTrue(wrong())


def test_require():
    wrong().require()


def test_something_else():
    assert not wrong()
    assert 1 + 1 == 3
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--assert=plain",), ("-n", "2")], ids=" ".join)
def test_a_failed_assertion_shows_the_whole_report_once(suite: Suite, words: tuple[str, ...]) -> None:
    suite.write("test_said.py", SAID)
    out = suite.run("test_said.py", *words).out
    for name in ("test_assert", "TestCase.test_true", "test_require", "test_something_else"):
        part = out.partition(f"_ {name} _")[2].partition("\n____")[0]
        plain = "--assert=plain" in words  # says nothing of what was asserted
        times = 1 if name != "test_something_else" else int(plain)
        assert part.count("FAIL  tanh (numpy, cpu): x → out in float64 is wrong at [") == times, part
        assert len(re.findall(r"\n(?:E )? +hint      twice the expected gradient", part)) == times
        node = name.replace(".", "::")
        assert part.count(f" replay    pytest test_said.py::{node} --karat-grad-seed ") == times
