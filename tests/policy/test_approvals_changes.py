"""Changed policies of real git ranges: what is added or laxer is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from factories.changed import FILE, look, one
from factories.policy_ranges import EXEMPTION, NEW_SKIP, POLICY, TEST, PolicyRange


@pytest.fixture
def tree(tmp_path: Path) -> PolicyRange:
    return PolicyRange(tmp_path / "mein Prüfstand", **{"exemptions.toml": EXEMPTION})


def test_an_added_skip_is_found_with_its_place(tree: PolicyRange) -> None:
    tree.write(FILE, TEST + NEW_SKIP)
    change = one(tree)
    waiver = change.waiver
    assert (change.what, waiver.rule, waiver.kind, waiver.scope, waiver.op) == (
        "added",
        "gradient",
        "skip",
        "TestHurried",
        "relu",
    )
    assert (waiver.shown, waiver.place) == ("in a hurry", f"{FILE}:{TEST.count(chr(10)) + 3}")


def test_leak_8_a_deletion_counts_for_nothing(tree: PolicyRange) -> None:
    skip, _, rest = TEST.partition("@skip_check_grad_ci")
    tree.write(FILE, skip + "\n" + rest.partition("\n")[2])
    assert look(tree) == ([], [])


def test_leak_8_a_positional_argument_does_not_pass(tree: PolicyRange) -> None:
    tree.edit(FILE, "max_relative_error=0.01", "None, 0.005, False, 0.5")
    rules = {(c.waiver.rule, c.waiver.kind, c.waiver.shown) for c in look(tree)[0]}
    assert rules == {("tolerance", "tolerance", "0.5"), ("tolerance", "step", "0.005")}


def test_leak_9_another_reason_is_another_skip(tree: PolicyRange) -> None:
    tree.edit(FILE, "its gradient is an index", "FIXME")
    change = one(tree)
    assert (change.what, change.waiver.shown) == ("changed", "FIXME")
    assert change.before is not None
    assert change.before.shown == "its gradient is an index"


NOT_CHANGES: dict[str, Callable[[PolicyRange], object]] = {
    "a comment": lambda t: t.edit(FILE, "class TestSoftmax", "# skip_check_grad_ci(reason='x')\nclass TestSoftmax"),
    "a text": lambda t: t.write("tests/test_more.py", 'x = "@skip_check_grad_ci(reason=1)"\n'),
    "layout": lambda t: t.edit(
        FILE, '(["X"], "Out", max_relative_error=0.01)', "(\n  ['X'],\n  'Out',\n  max_relative_error = 1e-2,\n )"
    ),
    "order": lambda t: t.write(FILE, "\n".join(reversed_classes())),
    "tighter": lambda t: t.edit(FILE, "0.01", "0.001"),
    "no tolerance": lambda t: t.edit(FILE, ", max_relative_error=0.01", ""),
    "the file is renamed": lambda t: (t.root / FILE).rename(t.root / "tests/test_renamed.py"),
    "an import under another name": lambda t: t.write(
        FILE, TEST.replace("skip_check_grad_ci\n", "skip_check_grad_ci as s\n").replace("@skip_check_grad_ci", "@s")
    ),
    "an exemption ends sooner": lambda t: t.edit("exemptions.toml", "2027-03-31", "2027-02-28"),
    "an exemption is gone": lambda t: t.write("exemptions.toml", ""),
    "an exemption is laid out otherwise": lambda t: t.write(
        "exemptions.toml", "# sorted\n" + EXEMPTION.replace(" = ", "=")
    ),
    "settings of another table": lambda t: t.write("karat.toml", POLICY + '[goldens]\npaths = ["g/**"]\n'),
    "another kind of file": lambda t: t.write("notes.md", NEW_SKIP),
}


def reversed_classes() -> list[str]:
    head, softmax, argmax = TEST.split("\n\n\n")
    return [head, "", "", argmax, "", softmax]


@pytest.mark.parametrize("what", NOT_CHANGES)
def test_what_grants_nothing_new_is_no_change(tree: PolicyRange, what: str) -> None:
    NOT_CHANGES[what](tree)
    assert look(tree) == ([], [])


def test_a_class_moved_to_another_file_is_no_change(tree: PolicyRange) -> None:
    head, softmax, argmax = TEST.split("\n\n\n")
    tree.write(FILE, f"{head}\n\n\n{softmax}\n")
    tree.write("tests/test_index.py", f"{head}\n\n\n{argmax}\n")
    assert look(tree) == ([], [])


def test_the_same_name_and_reason_on_another_class_elsewhere_is_no_move(tree: PolicyRange) -> None:
    head, softmax, argmax = TEST.split("\n\n\n")
    tree.write(FILE, f"{head}\n\n\n{softmax}\n")
    tree.write("tests/test_index.py", f"{head}\n\n\n{argmax}        self.x = 1\n")
    assert one(tree).what == "added"


def test_under_another_name_a_class_is_approved_again(tree: PolicyRange) -> None:
    tree.edit(FILE, "TestArgmax", "TestArgmin")
    change = one(tree)
    assert (change.what, change.waiver.scope) == ("added", "TestArgmin")


def test_a_renamed_file_with_a_new_skip_is_one_change(tree: PolicyRange) -> None:
    (tree.root / FILE).unlink()
    tree.write("tests/test_renamed.py", TEST + NEW_SKIP)
    assert one(tree).waiver.scope == "TestHurried"


def test_a_copy_grants_again(tree: PolicyRange) -> None:
    tree.write("tests/test_copy.py", TEST)
    changes, _ = look(tree)
    assert {c.waiver.path for c in changes} == {"tests/test_copy.py"}
    assert len(changes) == 2


def test_what_main_did_meanwhile_is_not_the_branchs(tree: PolicyRange) -> None:
    git = tree.repository.git
    git("checkout", "--quiet", "main")
    tree.write("tests/test_main.py", TEST)
    tree.repository.commit("main goes on")
    git("checkout", "--quiet", "topic")
    tree.write(FILE, TEST + NEW_SKIP)
    assert one(tree).waiver.scope == "TestHurried"


def test_other_files_are_not_looked_at(tmp_path: Path) -> None:
    """What a name gets from elsewhere is the gate's business, which wants an entry for what ran."""
    test = "from tols import TOL\nself.check_grad(['X'], 'Out', max_relative_error=TOL)\n"
    tree = PolicyRange(tmp_path / "r", **{"lib/tols.py": "TOL = 0.01\n", "tests/test_x.py": test})
    tree.write("lib/tols.py", "TOL = 0.5\n")
    assert look(tree) == ([], [])
    tree.write("tests/test_x.py", f"TOL = 1e-9\n{test}")  # which of the two it is, only running it tells
    change = one(tree)
    assert (change.waiver.rule, change.waiver.amounts) == ("tolerance", ())


EXEMPTIONS = {
    "another entry": (EXEMPTION.replace("argmax", "argsort"), "added"),
    "a later end": (EXEMPTION.replace("2027-03-31", "2027-04-30"), "changed"),
    "another reason": (EXEMPTION.replace("indices that", "positions that"), "changed"),
    "another kind": (EXEMPTION.replace('"special"', '"no-grad-op"'), "changed"),
    "a wider scope": (EXEMPTION.replace("kind", 'scope = "Test*"\nkind', 1), "added"),
}


@pytest.mark.parametrize("what", EXEMPTIONS)
def test_exemptions_added_or_changed(tree: PolicyRange, what: str) -> None:
    text, expected = EXEMPTIONS[what]
    tree.write("exemptions.toml", EXEMPTION + text if what == "another entry" else text)
    change = one(tree)
    assert (change.what, change.waiver.rule, change.waiver.kind) == (expected, "gradient", "exemption")


def test_an_exemption_of_a_tolerance_is_of_that_rule(tree: PolicyRange) -> None:
    entry = EXEMPTION.replace("kind", 'rule = "tolerance"\nmax_relative_error = 0.2\nkind', 1)
    tree.write("exemptions.toml", EXEMPTION + entry)
    assert one(tree).waiver.rule == "tolerance"


def test_an_invalid_exemption_is_told(tree: PolicyRange) -> None:
    tree.write("exemptions.toml", EXEMPTION + '[[exemption]]\nop = "x"\n')
    changes, findings = look(tree)
    assert (changes, [f.kind for f in findings]) == ([], ["exemption-invalid"])


def test_entries_of_the_ratchet_that_are_added(tree: PolicyRange) -> None:
    whole = '{\n"mylib.ops.a": null,\n%s"schema": "karat.policy-baseline/1"\n}\n'
    tree.repository.git("checkout", "--quiet", "main")
    tree.write("policy-baseline.json", whole % '"mylib.ops.gone": null,\n')
    tree.repository.commit()
    tree.repository.git("checkout", "--quiet", "-B", "topic")
    tree.write("policy-baseline.json", whole % '"mylib.ops.new": null,\n')
    change = one(tree)
    assert (change.waiver.rule, change.waiver.op) == ("baseline", "mylib.ops.new")


SETTINGS = {
    "approvers": POLICY.replace("@carol", "@mallory"),
    "exclude": POLICY + 'exclude = ["mylib.ops.slow_*"]\n',
    "tests": POLICY + 'tests = ["nowhere/**"]\n',
    "signers": POLICY + 'signers = "mine"\n',
    "forge": POLICY + 'forge = "gitlab"\n',
    "evidence": POLICY + 'evidence = "journals of better days"\n',
    "complete": POLICY + "complete = true\n",  # stricter, which nobody here tells apart
}


@pytest.mark.parametrize("key", SETTINGS)
def test_another_policy_is_a_change(tree: PolicyRange, key: str) -> None:
    tree.write("karat.toml", SETTINGS[key])
    change = one(tree)
    assert (change.waiver.rule, change.waiver.about) == ("policy", f"[policy] {key}")


def test_a_suite_that_need_not_be_complete_any_more_is_a_change(tmp_path: Path) -> None:
    tree = PolicyRange(tmp_path / "r", POLICY + "complete = true\n")
    tree.write("karat.toml", POLICY)
    assert one(tree).waiver.about == "[policy] complete"
