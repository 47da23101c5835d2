"""Tests that fork, and plugins that run each test in a fork."""

from __future__ import annotations

import pytest

from factories.pytest_runs import Suite

IN_A_FORK = """
    import os
    import pytest
    from _pytest.runner import runtestprotocol

    def pytest_runtest_protocol(item, nextitem):
        child = os.fork()
        if not child:
            passed = all(r.passed for r in runtestprotocol(item, nextitem=nextitem, log=False))
            os._exit(0 if passed else 1)
        ended = os.waitpid(child, 0)[1]
        report = pytest.TestReport(
            item.nodeid, item.location, {}, "failed" if ended else "passed", None, "call"
        )
        item.ihook.pytest_runtest_logreport(report=report)
        return True
"""


@pytest.mark.slow
def test_each_test_in_a_fork_is_counted(suite: Suite) -> None:
    suite.write("conftest.py", IN_A_FORK)
    suite.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.parametrize("n", range(3))
        def test_it(golden, n):
            golden.check(n, n, inputs=())
            assert n < 2
        """,
    )
    done = suite.capture()
    assert (done.count("passed"), done.count("failed")) == (2, 1), done.out
    assert "2 cases captured" in done.out
    assert "1 dropped with their tests" in done.out
    assert suite.tests() == ["test_it.py::test_it[0]|", "test_it.py::test_it[1]|"]
    assert suite.leftovers() == []


@pytest.mark.slow
def test_what_a_test_checks_in_a_fork_is_refused_aloud(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import os

        def test_forks(golden):
            child = os.fork()
            if not child:
                golden.check(1, 1, inputs=(), subtest="child")
                os._exit(0)
            os.waitpid(child, 0)
            golden.check(1, 1, inputs=(), subtest="parent")
        """,
    )
    done = suite.capture("--karat-strict")
    assert (done.code, done.count("passed")) == (1, 1), done.out
    assert "1 case captured" in done.out
    assert "test_forks (child) [test_it/default] was not captured: it was checked in a" in done.out
    assert suite.tests() == ["test_it.py::test_forks|parent"]
