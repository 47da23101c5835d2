"""Signed-off lists, with real SSH keys and the real ssh-keygen."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import missing
from factories.forge import Forge
from factories.policy_ranges import NEW_SKIP, TEST, PolicyRange, key, sign
from karat.findings import CannotVerify, UsageError
from karat.policy.approvals.check import Approvals, approvals, to_sign
from karat.policy.approvals.request import Options

POLICY = '[policy]\napprovers = {default = ["bob@example.org", "@carol", "t@example.invalid"]}\n'
FILE = "tests/test_ops.py"


class World:
    """A range whose base knows the keys of bob, carol, the author, a stranger and a wildcard."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("ssh-keygen") is None:
            missing("ssh-keygen (apt install openssh-client)")
        (folder / "keys").mkdir()
        names = {
            "bob": "bob@example.org,b.ob@example.org",
            "carol": "carol",
            "author": "t@example.invalid",
            "stranger": "zoe@example.org",
            "wild": "*@example.org",
        }
        made = {name: key(folder / "keys", name) for name in (*names, "unknown")}
        self.keys = {name: private for name, (private, _) in made.items()}
        allowed = "".join(f"{names[name]} {made[name][1]}\n" for name in names)
        self.tree = PolicyRange(folder / "r", POLICY, **{".karat/allowed_signers": allowed})
        self.tree.skip()
        self.file = folder / "sign-off.toml"
        self.file.write_text(to_sign(self.tree.root, Options(base="main")), encoding="utf-8")

    def sign(self, name: str, **more: str) -> Path:
        made = sign(self.keys[name], self.file, **more)
        return made.rename(made.with_name(f"{self.file.name}.{name}.sig"))

    def ask(self, **more: Any) -> Approvals:
        return approvals(self.tree.root, Options(base="main", sign_off=self.file, **more))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def why(told: Approvals) -> str:
    (one,) = told.judged
    return "; ".join([*one.missing, *(finding.message for finding in told.findings)])


@pytest.mark.slow
@pytest.mark.parametrize("who", ["bob", "carol"])
def test_a_list_signed_by_an_approver_approves(world: World, who: str) -> None:
    world.sign(who)
    told = world.ask()
    assert (told.exit_code, told.findings) == (0, ())
    assert told.judged[0].approved_by[0].startswith(who)


def test_the_list_says_what_is_signed(world: World) -> None:
    document = tomllib.loads(world.file.read_text(encoding="utf-8"))
    (entry,) = document["approved"]
    assert entry["rule"] == "gradient"
    assert "TestHurried" in entry["what"]
    assert entry["grants"] == "in a hurry"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("author", "wrote commit"),
        ("stranger", "zoe@example.org (sign-off.toml.stranger.sig) approved, but may not"),
        ("unknown", "it is no signature by a key of the list"),
        ("wild", "which is not a user name"),
    ],
)
def test_who_may_not_sign(world: World, who: str, said: str) -> None:
    world.sign(who)
    told = world.ask()
    assert told.exit_code == 1
    assert said in why(told)


@pytest.mark.slow
def test_a_list_that_was_edited_after_it_was_signed(world: World) -> None:
    world.sign("bob")
    world.file.write_text(world.file.read_text() + "\n# one more line\n")
    told = world.ask()
    assert told.exit_code == 1
    assert "not a signature of this text as it is now" in why(told)


@pytest.mark.slow
def test_a_signature_for_another_purpose(world: World) -> None:
    world.sign("bob", namespace="git")
    assert world.ask().exit_code == 1


@pytest.mark.slow
def test_no_signature_at_all(world: World) -> None:
    told = world.ask()
    assert told.exit_code == 1
    assert "has no signature beside it" in why(told)


@pytest.mark.slow
def test_a_list_is_of_these_changes_and_holds_wherever_the_head_goes(world: World) -> None:
    world.sign("bob")
    world.tree.write("README", "more")
    world.tree.commit()
    assert world.ask().exit_code == 0
    world.tree.write(FILE, TEST + NEW_SKIP.replace("in a hurry", "in no hurry"))
    world.tree.commit()
    assert "no signature on" in why(world.ask())


@pytest.mark.slow
def test_a_list_without_the_digest_approves_nothing(world: World) -> None:
    world.file.write_text('schema = "karat.sign-off/1"\napproved = []\n')
    world.sign("bob")
    assert world.ask().exit_code == 1


@pytest.mark.slow
def test_keys_that_the_branch_brings_along_open_nothing(world: World) -> None:
    public = world.keys["unknown"].with_suffix(".pub").read_text()
    world.tree.write(".karat/allowed_signers", f"bob@example.org {public}")
    world.tree.commit()
    world.file.write_text(to_sign(world.tree.root, Options(base="main")))
    world.sign("unknown")
    told = world.ask()
    assert told.exit_code == 1
    assert {one.waiver.about for one in told.judged} == {"skip_check_grad_ci", "keys that may sign"}
    assert "approvers-changed" in {finding.kind for finding in told.findings}


@pytest.mark.slow
def test_without_any_list_of_keys(world: World) -> None:
    world.tree.repository.git("checkout", "--quiet", "main")
    world.tree.repository.git("rm", "--quiet", ".karat/allowed_signers")
    world.tree.repository.commit()
    world.tree.repository.git("checkout", "--quiet", "topic")
    world.sign("bob")
    told = world.ask()
    assert "there is no list of keys to hold it against" in why(told)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "",
        "schema = 1",
        "approved = []",
        '{"schema": "karat.sign-off/1", "approved": [{}]}',
        "[" * 9000,
        'schema = "karat.sign-off/1"\napproved = "all"',
        "\x00",
        "[]",
    ],
)
def test_what_is_no_list_is_an_error(world: World, text: str) -> None:
    world.file.write_text(text)
    with pytest.raises(UsageError, match="sign-off"):
        world.ask()


@pytest.mark.slow
def test_a_list_that_is_not_there(world: World) -> None:
    world.file.unlink()
    with pytest.raises(UsageError, match="cannot read the sign-off") as caught:
        world.ask()
    assert "--print-sign-off" in caught.value.next_command


@pytest.mark.slow
def test_without_ssh_keygen(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world.sign("bob")
    (tmp_path / "bin").mkdir()
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin" / "git").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(CannotVerify, match="signatures need ssh-keygen, which is not on PATH"):
        world.ask()


@pytest.mark.slow
def test_odd_texts_survive_the_list(world: World) -> None:
    reason = 'quote " backslash \\\\ \\u202e \U0001f600 \\x7f'
    world.tree.write(FILE, TEST + NEW_SKIP.replace('"in a hurry"', repr(reason)))
    world.tree.commit()
    text = to_sign(world.tree.root, Options(base="main"))
    assert len(tomllib.loads(text)["approved"]) == 1


TWO = "[policy]\nforge = 'gitlab'\napprovers = {default = ['CODEOWNERS']}\n"


@pytest.mark.slow
@pytest.mark.parametrize("names", ["bob", "bob@example.org", "b,bob@example.org"])
def test_somebody_who_reviews_and_signs_is_one_person(tmp_path: Path, forge: Forge, names: str) -> None:
    """Two approvals are asked for: bob's review and bob's two keys are one."""
    made = {name: key(tmp_path, name) for name in ("one", "two", "carol")}
    owners = "[Tests][2] @bob @carol bob@example.org @b\n*\n"
    keys = "".join(f"{'carol' if n == 'carol' else names} {public}\n" for n, (_, public) in made.items())
    files = {".gitlab/CODEOWNERS": owners, ".karat/allowed_signers": keys}
    tree = PolicyRange(tmp_path / "r", TWO, **files)
    request = forge.gitlab.merge_request("octo/x", 5, author="alice", head=tree.skip())
    request.approve("bob")
    forge.gitlab.emails["bob"] = "bob@example.org"
    file = tmp_path / "sign-off.toml"
    env = {"CI_API_V4_URL": forge.gitlab_url, "GITLAB_TOKEN": forge.gitlab.token}
    options = Options(base="main", merge=5, repo="octo/x", env=env)
    file.write_text(to_sign(tree.root, options), encoding="utf-8")
    for name in ("one", "two"):
        made_by = sign(made[name][0], file)
        made_by.rename(made_by.with_name(f"{file.name}.{name}.sig"))
    options = msgspec.structs.replace(options, sign_off=file)
    told = approvals(tree.root, options)
    assert "Tests: 1 of 2 approvals" in why(told)
    sign(made["carol"][0], file)
    assert approvals(tree.root, options).exit_code == 0


@pytest.mark.slow
def test_an_author_does_not_sign_under_the_address_his_account_shows(tmp_path: Path, forge: Forge) -> None:
    private, public = key(tmp_path, "alice")
    policy = '[policy]\napprovers = {default = ["alice@example.org"]}\n'
    keys = {".karat/allowed_signers": f"alice@example.org {public}\n"}
    tree = PolicyRange(tmp_path / "r", policy, **keys)
    forge.github.pull("octo/x", 7, author="alice", head=tree.skip())
    file = tmp_path / "sign-off.toml"
    env = {"GITHUB_API_URL": forge.github_url, "GITHUB_TOKEN": forge.github.token}
    options = Options(base="main", pull=7, repo="octo/x", env=env, sign_off=file)
    file.write_text(to_sign(tree.root, options), encoding="utf-8")
    sign(private, file)
    assert approvals(tree.root, options).exit_code == 0  # nobody can know
    forge.github.emails["alice"] = "alice@example.org"
    assert "is the author of the pull request" in why(approvals(tree.root, options))


@pytest.mark.slow
def test_what_is_on_the_list_wants_a_signature_and_what_is_not_another_list(world: World) -> None:
    (_, finding) = world.ask().findings
    assert finding.next == f"ssh-keygen -Y sign -n karat-policy -f ~/.ssh/id_ed25519 {world.file}"
    world.tree.edit(FILE, "in a hurry", "in a great hurry")
    world.tree.commit()
    assert "--print-sign-off > " in (world.ask().findings[-1].next or "")
