"""Signatures by SSH keys, made and verified by `ssh-keygen -Y`; an ALLOWED SIGNERS file says whose key is whose."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from karat.findings import CannotVerify, UsageError
from karat.system.command import Command

_LONGEST = 1 << 16  # bytes of a signature; one with a certificate has some thousands


def sign(data: bytes, key: Path, namespace: str) -> str:
    """A signature, as text. `key` is a private key without a passphrase, or one that ssh-agent holds; nobody is asked."""
    made = _ssh_keygen(["-Y", "sign", "-n", namespace, "-f", str(key.expanduser().absolute())], data)
    if made.returncode:
        said = made.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"]
        text = f"expected an SSH key to sign with in {key}; ssh-keygen said: {said[-1]}"
        raise UsageError(text, next_command=Command("ssh-add", str(key)))
    return made.stdout.decode("ascii")


def verify(data: bytes, signature: bytes, signers: bytes, namespace: str) -> tuple[str, ...] | str:
    """The names, in lower case, that `signers` gives to the key that signed; or why the signature does not count."""
    if len(signature) > _LONGEST:
        return f"it has more than {_LONGEST:,} bytes"
    with tempfile.TemporaryDirectory(prefix="karat-") as folder:
        allowed, signed = Path(folder) / "allowed_signers", Path(folder) / "signature"
        allowed.write_bytes(signers)
        signed.write_bytes(signature)
        where = ("-s", str(signed), "-f", str(allowed))
        asked = _ssh_keygen(["-Y", "find-principals", *where], b"")
        words = asked.stdout.decode("utf-8", "replace").split("\n")
        principals = [word.strip() for word in words if word.strip()]
        if asked.returncode or not principals:
            return "it is no signature by a key of the list"
        if any(set("*?!") & set(one) for one in principals):
            return f"its key belongs to {', '.join(principals)}, which is not a user name"
        for principal in principals:
            if _ssh_keygen(["-Y", "verify", *where, "-I", principal, "-n", namespace], data).returncode:
                return f"it is not a signature of this text as it is now, for {namespace}, by {principal}"
    return tuple(one.lower() for one in principals)


def _ssh_keygen(words: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        text = "signatures need ssh-keygen, which is not on PATH"
        raise CannotVerify(text, next_command="apt install openssh-client")
    try:
        # In a session of its own there is no terminal to ask for a passphrase, and to wait at.
        return subprocess.run(
            [program, *words], input=stdin, capture_output=True, check=False, timeout=20.0, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        text = f"ssh-keygen did not answer: {type(error).__name__}"
        raise CannotVerify(text, next_command="ssh-keygen -Y help") from error
