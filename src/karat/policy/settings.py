"""What karat.toml says about the gradient policy: the table [policy]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from karat.findings import suggest

RULES = ("gradient", "float64", "tolerance", "determinism", "weak", "baseline", "policy")
"""What a waiver is from; each has its approvers."""
DEFAULT_RULE = "default"  # Whose approvers decide on the rules that have none of their own.


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [policy]."""

    exemptions: str = "exemptions.toml"  # The file of exemptions, seen from where karat.toml is.
    evidence: str = ".karat/evidence"
    """Where `karat policy gate` and `coverage` look for journals if no folder is named, seen from where karat.toml is."""
    baseline: str = "policy-baseline.json"
    """The baseline: ops that are known to lack evidence. It only ever gets shorter."""
    namespaces: tuple[str, ...] = ()  # Python modules whose public callables are operators: `mylib.ops`.
    exclude: tuple[str, ...] = ()  # Globs of qualified names in those namespaces that are not operators.
    complete: bool = False  # Whether the journals that are gated are always those of the whole suite.
    devices: tuple[str, ...] = ()  # Devices on which evidence must exist; none: any device will do.
    approvers: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Rule → who may approve an exemption from it: `@user`, `@org/team`, an e-mail, or `CODEOWNERS`; `default` for the rest."""
    tests: tuple[str, ...] = ()  # Globs of test files that approvals look into; none: every Python file that changed.
    forge: Literal["github", "gitlab"] | None = None
    """Where reviews are asked for; by default what the CI's variables or the remote say."""
    signers: str = ".karat/allowed_signers"
    """Whose SSH keys may sign a list of approvals: ssh-keygen's ALLOWED SIGNERS, seen from the root of the repository."""

    def __post_init__(self) -> None:
        # Approvers of a rule that there is not would approve nothing, in silence.
        known = (*RULES, DEFAULT_RULE)
        for rule in self.approvers:
            if rule not in known:
                raise ValueError(f"approvers: unknown key {rule!r}{suggest(rule, known)} (known: {', '.join(known)})")
