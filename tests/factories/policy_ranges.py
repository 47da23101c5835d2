"""Repositories with a gradient policy, and a branch that changes it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from factories.repositories import Repository

POLICY = '[policy]\napprovers = {default = ["@bob", "@octo/numerics"], tolerance = ["@carol"]}\n'
TEST = """
from op_test import OpTest, skip_check_grad_ci


class TestSoftmax(OpTest):
    def setUp(self):
        self.op_type = "softmax"

    def test_check_grad(self):
        self.check_grad(["X"], "Out", max_relative_error=0.01)


@skip_check_grad_ci(reason="its gradient is an index")
class TestArgmax(OpTest):
    def setUp(self):
        self.op_type = "argmax"
"""
NEW_SKIP = """

@skip_check_grad_ci("in a hurry")
class TestHurried(OpTest):
    def setUp(self):
        self.op_type = "relu"
"""
EXEMPTION = """
[[exemption]]
op = "argmax"
kind = "special"
reason = "gives indices that do not move with the input"
owner = "@bob"
issue = "https://example.org/octo/goldens/issues/3"
expires = 2027-03-31
"""


class PolicyRange:
    """`main` with a policy, and `topic`, which a test fills."""

    def __init__(self, root: Path, policy: str = POLICY, **files: str) -> None:
        self.repository = Repository(root)
        self.root = root
        self.repository.write("karat.toml", policy)
        self.repository.write("tests/test_ops.py", TEST)
        for name, text in files.items():
            self.repository.write(name, text)
        self.base = self.repository.commit("base")
        self.repository.git("checkout", "--quiet", "-b", "topic")

    def write(self, name: str, text: str | bytes) -> None:
        self.repository.write(name, text)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def commit(self, message: str = "topic") -> str:
        return self.repository.commit(message)

    def skip(self) -> str:
        """The simplest change that needs an approval, committed."""
        self.write("tests/test_ops.py", TEST + NEW_SKIP)
        return self.commit()


def key(folder: Path, name: str) -> tuple[Path, str]:
    """A real SSH key: its file, and its public half."""
    path = folder / name
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    return path, " ".join(path.with_suffix(".pub").read_text().split()[:2])


def sign(private: Path, file: Path, namespace: str = "karat-policy") -> Path:
    words = ["ssh-keygen", "-Y", "sign", "-n", namespace, "-f", str(private), str(file)]
    subprocess.run(words, check=True, capture_output=True)
    return file.with_name(f"{file.name}.sig")
