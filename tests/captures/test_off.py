"""Capture off: nothing changes, and nothing is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.pytest_runs import Suite

# The plugin of the policy is there as well, and brings nothing.
ROOMS = "[m for m in sys.modules if m.startswith('karat.') and not m.startswith(('karat.captures', 'karat.policy'))]"


@pytest.mark.slow
def test_no_room_is_imported_until_golden_is_used(suite: Suite) -> None:
    suite.write(
        "test_light.py",
        f"""
        import sys

        def test_rooms():
            assert {ROOMS} == []
            assert {{m for m in sys.modules if m.startswith("karat")}} == {{
                "karat", "karat.captures", "karat.captures.plugin",
                "karat.policy", "karat.policy.plugin",
            }}
            assert not {{"numpy", "msgspec", "httpx", "rich", "click"}} & set(sys.modules)

        def test_that_uses_it(golden):
            assert "karat.bundles.manifest" in sys.modules
        """,
    )
    done = suite.run("-q")
    assert done.count("passed") == 2, done.out
    assert "karat" not in done.out.replace(str(suite.root), "")


def test_loading_the_plugin_imports_pytest_and_the_standard_library_alone(suite: Suite) -> None:
    out = suite.python(
        "-c",
        "import sys, pytest; before = set(sys.modules); import karat.captures.plugin;"
        "print(*sorted(set(sys.modules) - before))",
    ).out
    assert out.split() == ["karat", "karat.captures", "karat.captures.plugin"]


def test_the_plain_function_imports_nothing_either(suite: Suite) -> None:
    suite.write("karat.toml", "not even TOML")
    suite.write(
        "script.py",
        """
        import sys, karat
        before = set(sys.modules)
        assert karat.capture("t", inputs=(), expected=1) is None
        print(*sorted(m for m in set(sys.modules) - before if m.partition(".")[0] != "unittest"))
        """,
    )
    assert suite.python("script.py").out.split() == ["karat.captures", "karat.captures.functions"]


@pytest.mark.slow
def test_the_fixture_compares_and_writes_nothing(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import numpy as np

        def test_same(golden):
            report = golden.check(np.ones(3), np.ones(3), inputs=(1,))
            assert report.passed and len(report.comparisons) == 1
            golden.check(np.ones(3), np.ones(3), inputs=(1,))  # nothing is captured, so not twice
            golden.capture(inputs=(), expected=1)

        def test_other(golden):
            golden.check(np.zeros(3), np.ones(3), inputs=())
        """,
    )
    before = files(suite)
    done = suite.run("-q", "-p", "no:karat-capturing")
    assert (done.code, done.count("passed"), done.count("failed")) == (1, 1, 1)
    assert "karat.Mismatch: test_it.py::test_other: 1 of 1 compared" in done.out
    assert files(suite) == before


def files(suite: Suite) -> list[Path]:
    return sorted(path for path in suite.root.rglob("*") if "__pycache__" not in str(path))


@pytest.mark.slow
def test_empty_variables_are_off(suite: Suite) -> None:
    suite.write("test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    done = suite.run(KARAT_CAPTURE_DIR="", GOLDEN_ARTIFACTS_DIR="")
    assert done.code == 0
    assert "capturing" not in done.out


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--collect-only",), ("--fixtures",), ("--help",), ("--setup-plan",)])
def test_who_only_looks_makes_no_directory(suite: Suite, words: tuple[str, ...]) -> None:
    suite.write("test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    done = suite.capture(*words)
    assert done.code == 0, done.out
    assert not suite.captures.exists()


@pytest.mark.slow
def test_without_the_plugin_there_is_no_trace_of_it(suite: Suite) -> None:
    suite.write("test_it.py", "def test(): pass\n")
    assert suite.run("-p", "no:karat").code == 0
    assert "--karat-capture" not in suite.run("-p", "no:karat", "--help").out
    assert "--karat-capture" in suite.run("--help").out
