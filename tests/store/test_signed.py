"""Signed references: who made a golden, by real SSH keys and the real ssh-keygen."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import missing
from factories.policy_ranges import key, sign
from factories.store_world import World
from karat.store import references
from karat.store.backends import open_store
from karat.store.objects import seal
from karat.system.hashes import sha256_hex

NAME = "models/nightly"


class SignedWorld(World):
    """Two known keys, `ci` and `wild`, one for approvals alone, and a stranger's."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        if shutil.which("ssh-keygen") is None:
            missing("ssh-keygen (apt install openssh-client)")
        made = {name: key(root, name) for name in ("ci", "wild", "approver", "stranger")}
        (root / ".karat").mkdir()
        self.signers = root / ".karat" / "allowed_signers"
        self.signers.write_text(
            f"Nightly@example.org {made['ci'][1]}\n"
            f"*@example.org {made['wild'][1]}\n"
            f'bob@example.org namespaces="karat-policy" {made["approver"][1]}\n'
        )

    def push(self, signer: str | None = "ci") -> str:
        told = self.report("push", "captures", NAME, *(() if signer is None else ("--sign", signer)))
        assert told["result"]["signed"] == (signer is not None)
        return str(told["result"]["digest"])

    def refused(self, *words: str, reference: str = NAME) -> str:
        """Why a pull that requires a signature is refused; nothing is installed then."""
        told = self.report("pull", reference, "out", "--require-signed", *words, code=1)
        (finding,) = told["findings"]
        assert finding["kind"] == "not-signed"
        assert not (self.root / "out").exists()
        return str(finding["message"])

    def entry(self) -> Path:
        """The newest reference."""
        return max((self.store / "refs" / NAME).iterdir())

    def rewritten(self, data: bytes) -> None:
        """The newest reference, replaced by somebody who also deletes what would give it away: they can, but not sign."""
        shutil.rmtree(self.store / references.LINKS)
        self.entry().write_bytes(data)


@pytest.fixture
def world(tmp_path: Path) -> SignedWorld:
    return SignedWorld(tmp_path)


@pytest.mark.slow
def test_a_consumer_knows_who_pushed(world: SignedWorld) -> None:
    digest = world.push()
    told = world.report("pull", NAME, "out", "--require-signed")
    assert told["result"]["signed_by"] == ["nightly@example.org"]
    assert "  signed by nightly@example.org\n" in world.run("pull", NAME, "two", "--require-signed").out
    word = f"sha256:{digest}"
    assert world.report("pull", word, "three", "--require-signed")["result"]["signed_by"] == ["nightly@example.org"]
    document = json.loads(world.entry().read_text())
    assert document["signature"].startswith("-----BEGIN SSH SIGNATURE-----")
    world.run("verify", str(world.store))
    assert world.report("pull", NAME, "four")["result"]["signed_by"] == []  # it was not asked for


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signer", "said"),
    [
        (None, "found: none"),
        ("stranger", "no signature by a key of the list"),
        ("wild", "which is not a user name"),
        ("approver", "for karat-store, by bob@example.org"),
    ],
)
def test_what_nobody_who_may_has_signed_is_refused(world: SignedWorld, signer: str | None, said: str) -> None:
    world.push(signer)
    assert said in world.refused()


@pytest.mark.slow
def test_an_unsigned_push_on_top_of_a_signed_one_is_refused(world: SignedWorld) -> None:
    world.push()
    world.more()
    world.push(None)
    assert "found: none" in world.refused()


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"digest": "0" * 64},
        {"date": "2099-01-01T00:00:00.000000Z"},
        {"expires": "2099-01-01T00:00:00.000000Z"},
        {"name": "models/other"},
        {"ci": {"commit": "f" * 40}},
        {"keep": 30},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_reference_that_was_changed_and_sealed_again_is_refused(
    world: SignedWorld, change: dict[str, object]
) -> None:
    """Whoever can write to the store can seal; they cannot sign."""
    world.push()
    backend = open_store(str(world.store))
    known = references.resolve(backend, NAME)
    forged = msgspec.structs.replace(known, **change)
    world.rewritten(b"")
    world.entry().unlink()
    assert backend.put(references.key_for(forged), seal(forged))
    assert "not a signature of this text as it is now" in world.refused(reference=forged.name)


@pytest.mark.slow
def test_a_second_member_cannot_stand_in_for_a_signed_one(world: SignedWorld) -> None:
    world.push()
    signed = references.resolve(open_store(str(world.store)), NAME)
    body = seal(signed).rpartition(b',\n "sha256"')[0]
    body += b',\n "cases": 7'
    world.rewritten(body + b',\n "sha256": "%s"\n}\n' % sha256_hex(body).encode())
    assert "not a signature of this text as it is now" in world.refused()


@pytest.mark.slow
def test_a_signature_for_another_purpose(world: SignedWorld) -> None:
    world.push(None)
    backend = open_store(str(world.store))
    known = references.resolve(backend, NAME)
    (world.root / "text").write_bytes(references.signed_bytes(known))
    made = sign(world.root / "ci", world.root / "text", namespace="git").read_text()
    world.rewritten(seal(msgspec.structs.replace(known, signature=made)))
    assert "not a signature of this text as it is now, for karat-store" in world.refused()


@pytest.mark.slow
@pytest.mark.parametrize(("text", "said"), [("", "no signature by a key"), ("x" * 70_000, "more than 65,536 bytes")])
def test_what_is_no_signature(world: SignedWorld, text: str, said: str) -> None:
    world.push(None)
    known = references.resolve(open_store(str(world.store)), NAME)
    world.rewritten(seal(msgspec.structs.replace(known, signature=text)))
    assert said in world.refused()


@pytest.mark.slow
def test_what_only_a_lock_names_still_has_no_signature(world: SignedWorld) -> None:
    digest = world.push()
    world.entry().unlink()
    assert "no reference any more" in world.refused(reference=f"sha256:{digest}")


@pytest.mark.slow
def test_a_key_that_cannot_sign_ends_the_push_before_anything_is_sent(world: SignedWorld) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(world.root / "locked")]
    subprocess.run(words, check=True, capture_output=True)
    for name in ("nobody", "locked", "captures"):
        told = world.run("push", "captures", NAME, "--sign", name, code=2, SSH_AUTH_SOCK="").err
        assert f"expected an SSH key to sign with in {name}" in told
        assert f"next: ssh-add {name}" in told
    assert not world.store.exists()


@pytest.mark.slow
def test_the_list_of_keys(world: SignedWorld) -> None:
    world.push()
    world.signers.rename(world.root / "keys")
    told = world.run("pull", NAME, "out", "--require-signed", code=2).err
    assert "expected the keys that may sign in" in told
    (world.root / "karat.toml").write_text('[store]\nsigners = "keys"\n')
    (world.root / "below").mkdir()
    world.run("pull", NAME, "out", "--require-signed", cwd=world.root / "below")


READING = {
    "pull": ["pull", NAME, "out"],
    "verify": ["verify", f"store:{NAME}"],
    "diff": ["diff", f"store:{NAME}", "captures"],
    "replay": ["replay", f"store:{NAME}", "--command", "true {program} {inputs} {outputs}"],
    "push": ["push", f"store:{NAME}", "models/copy"],
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", READING)
def test_with_keys_in_the_environment_no_command_reads_what_is_not_signed(world: SignedWorld, verb: str) -> None:
    """A clone's karat.toml cannot take that back."""
    (world.root / "karat.toml").write_text('[store]\nsigners = "strangers"\n')
    (world.root / "strangers").write_text(f"eve@example.org {(world.root / 'stranger.pub').read_text()}")
    keys: dict[str, Any] = {"KARAT_SIGNERS": str(world.signers)}
    world.push("stranger")
    told = world.run(*READING[verb], code=1, **keys)
    assert "expected a signature by a key of" in told.out + told.err
    assert not (world.root / "out").exists()
    world.push()
    code = 1 if verb == "replay" else 0  # `true` leaves no outputs
    told = world.run(*READING[verb], code=code, **keys)
    assert "signature" not in told.out + told.err
    assert verb != "pull" or "signed by nightly@example.org" in told.out
    gone = world.run(*READING[verb], code=2, KARAT_SIGNERS="nowhere").err
    assert "expected the keys that may sign in nowhere" in gone
