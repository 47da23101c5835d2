from __future__ import annotations

import os
from pathlib import Path

import pytest

from factories.changed import FILE, look, one
from factories.policy_ranges import EXEMPTION, NEW_SKIP, POLICY, TEST, PolicyRange
from karat.findings import CannotVerify, UsageError
from karat.policy.approvals.request import Options, Sides


@pytest.fixture
def tree(tmp_path: Path) -> PolicyRange:
    return PolicyRange(tmp_path / "mein Prüfstand", **{"exemptions.toml": EXEMPTION})


def test_the_bases_globs_say_where_to_look(tmp_path: Path) -> None:
    tree = PolicyRange(tmp_path / "r", POLICY + 'tests = ["tests/**/*.py"]\n')
    tree.write("lib/ops.py", NEW_SKIP)
    tree.write("tests/deep/test_x.py", "from op_test import *\n" + NEW_SKIP)
    assert one(tree).waiver.path == "tests/deep/test_x.py"


def test_a_file_that_is_no_python_cannot_be_verified(tree: PolicyRange) -> None:
    tree.write(FILE, TEST + NEW_SKIP)
    tree.write("tests/test_broken.py", "def f(:\n")
    changes, findings = look(tree)
    assert [c.waiver.scope for c in changes] == ["TestHurried"]  # the others are still looked at
    (finding,) = findings
    assert finding.kind == "cannot-read"
    assert "tests/test_broken.py" in finding.message
    assert "line 1" in finding.message


def test_a_file_that_was_no_python_before_counts_as_new(tree: PolicyRange) -> None:
    tree.repository.git("checkout", "--quiet", "main")
    tree.write(FILE, "print 'two'\n")
    tree.repository.commit()
    tree.repository.git("checkout", "--quiet", "-B", "topic")
    tree.write(FILE, TEST)
    changes, findings = look(tree)
    assert len(changes) == 2
    assert [(f.kind, f.severity.value) for f in findings] == [("unreadable", "info")]


@pytest.mark.parametrize("name", ["tests/test_link.py", "exemptions.toml", "tests/karat.toml"])
def test_a_symbolic_link_is_not_followed_and_not_ignored(tree: PolicyRange, name: str) -> None:
    tree.write("elsewhere.txt", NEW_SKIP)
    (tree.root / name).unlink(missing_ok=True)
    (tree.root / name).symlink_to(tree.root / "elsewhere.txt")
    _, findings = look(tree)
    assert [(f.kind, f.path) for f in findings] == [("cannot-read", name)]


LAX = '[policy]\nexemptions = "mine.toml"\n'


@pytest.mark.parametrize(
    ("name", "text"), [("karat.toml", LAX), ("pyproject.toml", LAX.replace("policy", "tool.karat.policy"))]
)
def test_settings_of_another_folder_hide_no_exemptions(tree: PolicyRange, name: str, text: str) -> None:
    """With a pytest.ini beside it, tests/ is where a session looks for its settings."""
    tree.write(f"tests/{name}", text)
    tree.write("tests/mine.toml", EXEMPTION + EXEMPTION.replace("argmax", "argsort"))
    changes, _ = look(tree)
    assert {(c.waiver.path, c.waiver.op, c.waiver.about) for c in changes} == {
        ("tests/mine.toml", "argsort", "exemption from gradient"),
        ("tests/mine.toml", "argmax", "exemption from gradient"),  # it held there before, from another list
        (f"tests/{name}", "", "[policy] exemptions"),
    }


@pytest.mark.slow
def test_broken_settings_of_another_folder_stop_only_who_breaks_them(tmp_path: Path) -> None:
    tree = PolicyRange(tmp_path / "r", **{"examples/bad/karat.toml": "[policy\n"})
    tree.write("README", "more")
    assert look(tree) == ([], [])
    tree.write("tests/karat.toml", '[policy\nexemptions = "/etc/mine.toml"\n')
    _, (finding,) = look(tree)
    assert (finding.kind, finding.path) == ("cannot-read", "tests/karat.toml")


def test_exemptions_of_another_folder_are_looked_at_too(tmp_path: Path) -> None:
    tree = PolicyRange(tmp_path / "r", **{"lib/karat.toml": POLICY, "lib/pyproject.toml": "[x]\n"})
    tree.write("lib/exemptions.toml", EXEMPTION)
    assert one(tree).waiver.path == "lib/exemptions.toml"


@pytest.mark.parametrize("target", ["elsewhere", "../elsewhere", "/etc"])
def test_a_link_to_a_folder_is_said(tree: PolicyRange, target: str) -> None:
    tree.write("elsewhere/test_x.txt", NEW_SKIP)
    (tree.root / "more tests").symlink_to(target)
    _, (finding,) = look(tree)
    assert (finding.kind, finding.severity.value) == ("unreadable", "warn")
    assert "more tests is a symbolic link" in finding.message


def test_a_submodule_is_said(tree: PolicyRange, tmp_path: Path) -> None:
    other = PolicyRange(tmp_path / "other")
    git = tree.repository.git
    git("update-index", "--add", "--cacheinfo", f"160000,{other.base},tests/other")
    git("commit", "--quiet", "-m", "a submodule")
    changes = Sides(tree.root, Options(base="main")).changes()
    assert [(f.severity.value, f.path) for f in changes.findings] == [("warn", "tests/other")]


def test_exemptions_behind_a_folder_that_leads_elsewhere(tmp_path: Path) -> None:
    policy = POLICY + 'exemptions = "policy/exemptions.toml"\n'
    tree = PolicyRange(tmp_path / "r", policy)
    tree.write("elsewhere/exemptions.toml", EXEMPTION)
    (tree.root / "policy").symlink_to("elsewhere")
    changes, (finding,) = look(tree)
    assert [change.waiver.path for change in changes] == ["elsewhere/exemptions.toml"]
    assert (finding.kind, finding.path) == ("cannot-read", "policy")
    assert "found a symbolic link" in finding.message


def test_odd_names_of_files(tree: PolicyRange) -> None:
    name = os.fsdecode(b"tests/test \xff\n.py")
    tree.write(name, "from op_test import *\n" + NEW_SKIP)
    change = one(tree)
    assert change.waiver.path == name
    assert len(change.digest) == 64


@pytest.mark.slow
def test_a_digest_is_of_the_change_and_not_of_the_head(tree: PolicyRange) -> None:
    tree.write(FILE, TEST + NEW_SKIP)
    before = one(tree)
    tree.write(FILE, "# a line more\n" + TEST + NEW_SKIP)
    moved = one(tree)
    tree.edit(FILE, "in a hurry", "in a great hurry")
    other = one(tree)
    assert before.waiver.line != moved.waiver.line
    assert before.digest == moved.digest != other.digest


@pytest.mark.parametrize("base", ["nowhere", "origin/main", "-x", "HEAD:tests"])
def test_a_base_that_is_not_there(tree: PolicyRange, base: str) -> None:
    with pytest.raises(CannotVerify, match=r"there is no commit .* here"):
        Sides(tree.root, Options(base=base))


@pytest.mark.parametrize("base", ["origin/main", "origin/main~0"])
def test_a_tag_that_is_called_like_the_base_is_not_taken_for_it(tree: PolicyRange, base: str) -> None:
    git = tree.repository.git
    git("update-ref", "refs/remotes/origin/main", "main")
    tree.write("karat.toml", POLICY.replace("@bob", "@mallory"))
    tree.commit()
    git("tag", "-m", "x", "origin/main")
    with pytest.raises(CannotVerify, match="refs/remotes/origin/main and refs/tags/origin/main"):
        Sides(tree.root, Options(base=base))
    assert Sides(tree.root, Options(base="refs/remotes/origin/main")).changes().changes
    git("tag", "-f", "-m", "x", "origin/main", "refs/remotes/origin/main")
    assert Sides(tree.root, Options(base=base)).tip.commit == tree.base


def test_a_shallow_clone_says_what_to_fetch(tree: PolicyRange, tmp_path: Path) -> None:
    tree.skip()
    url = tree.root.as_uri()
    tree.repository.git("clone", "--quiet", "--depth=1", "--branch=topic", url, str(tmp_path / "c"))
    shallow = tmp_path / "c"
    tree.repository.git("-C", str(shallow), "fetch", "--quiet", "--depth=1", "origin", "main:main")
    with pytest.raises(CannotVerify, match="shallow clone") as caught:
        Sides(shallow, Options(base="main"))
    assert "--unshallow" in caught.value.next_command


BAD_POLICIES = {
    "": "found none",
    "[policy]\n": "found none",
    '[policy]\napprovers = {gradeint = ["@a"]}\n': "did you mean 'gradient'",
    '[policy]\napprovers = {default = ["bob"]}\n': "found 'bob'",
    "[policy]\napprovers = {default = []}\n": "of default: the list is empty",
    '[policy]\napprovers = {default = ["@a"]}\nsigners = "/etc/keys"\n': "a file of the repository",
    '[policy]\napprovers = {default = ["@a"]}\nsigners = ""\n': "a file of the repository",
    '[policy]\napprovers = {default = ["@a"]}\nexemptions = "../x.toml"\n': "a file of the repository",
}


@pytest.mark.parametrize("policy", BAD_POLICIES)
def test_a_policy_without_approvers_is_a_usage_error(tmp_path: Path, policy: str) -> None:
    tree = PolicyRange(tmp_path / "r", policy)
    tree.skip()
    with pytest.raises(UsageError, match=BAD_POLICIES[policy]):
        Sides(tree.root, Options(base="main"))
