"""The examples of docs/capture.md are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from factories.pytest_runs import Suite

PAGE = (Path(__file__).parents[2] / "docs" / "capture.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.slow
def test_examples_run_and_capture_what_the_page_says(suite: Suite) -> None:
    for name, text in EXAMPLES.items():
        suite.write(name, text)
    done = suite.capture()
    assert (done.code, done.count("passed")) == (0, 6), done.out
    found = {
        (i["suite"], i["flow"], i["test"].split("::")[-1].split(".")[-1], i["subtest"])
        for i in (m["identity"] for m in suite.manifests())
    }
    assert found == {
        ("models", "default", "test_scale", ""),
        ("layers", "portable", "test_linear", ""),
        ("models", "default", "test_shapes", "size=1"),
        ("models", "default", "test_shapes", "size=5"),
        ("models", "default", "test_two_outputs", "sum"),
        ("models", "default", "test_two_outputs", "product"),
        ("models", "default", "test_double", ""),
    }
    packed = suite.python("-m", "karat", "pack", str(suite.captures), "--output", str(suite.root / "packed"))
    assert packed.code == 0, packed.out


def test_the_unittest_example_runs_without_pytest(suite: Suite) -> None:
    suite.write("models/__init__.py", "")
    suite.write("models/test_unittest.py", EXAMPLES["models/test_unittest.py"])
    words = ("-m", "unittest", "models.test_unittest")
    done = suite.python(*words, KARAT_CAPTURE_DIR="captures")
    assert done.code == 0, done.out
    assert suite.tests() == ["models.test_unittest.TestScale.test_double|"]
    assert [m["identity"]["suite"] for m in suite.manifests()] == ["models"]


def test_every_option_is_on_the_page(suite: Suite) -> None:
    options = set(re.findall(r"--(?:no-)?karat-[a-z]+", suite.run("--help").out))
    others = {"--karat-update", "--karat-repeat"}  # on snapshots'
    others |= {"--karat-evidence", "--karat-policy", "--karat-grad"}  # on the policy's
    ours = options - others
    assert {"--karat-capture", "--no-karat-strict"} <= ours
    assert [option for option in sorted(ours) if f"`{option}" not in PAGE] == []
