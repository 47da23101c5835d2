"""The command line as a user runs it: a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def karat(*words: str, cwd: Path, stdin: str | None = None, **environment: str) -> Outcome:
    """Run karat with warnings as errors and without this process's terminal or CI settings."""
    clean = {
        k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "NO_COLOR", "CI", "COLUMNS"}
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "karat", *words],
        cwd=cwd,
        env={**clean, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        errors="surrogateescape",
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
