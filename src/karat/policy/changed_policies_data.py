"""Waivers that are data: exemptions, the ratchet's list, and what karat.toml says of the policy."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import msgspec

from karat.findings import Finding
from karat.policy.changed_policies_waiver import Waiver
from karat.policy.exemptions import Exemption, parse
from karat.policy.settings import PolicySettings


def exemption_waivers(data: bytes, path: str) -> tuple[list[Waiver], tuple[Finding, ...]]:
    """The entries of exemptions.toml, and what is wrong with the others, which cover nothing."""
    found = parse(data, path)
    return [_exemption(entry, path) for entry in found.entries], found.findings


def _exemption(entry: Exemption, path: str) -> Waiver:
    """An earlier end and a smaller bound are stricter; whatever else changes is another exemption."""
    ends = float(entry.expires.toordinal()) if entry.expires else inf
    bounds = (entry.max_relative_error or 0.0, entry.nondeterminism_bound or 0.0)
    words = (entry.kind, entry.reason, entry.owner, entry.issue or "")
    until = f", until {entry.expires.isoformat()}" if entry.expires else ""
    limit = f", up to {max(bounds):g}" if max(bounds) else ""
    return Waiver(
        rule=entry.rule,
        kind="exemption",
        path=path,
        line=entry.line,
        scope=entry.scope,
        op=entry.op,
        about=f"exemption from {entry.rule}",
        value=msgspec.json.encode([" ".join(word.split()) for word in words]).decode(),
        amounts=(ends, *bounds),
        shown=f"{entry.kind}: {' '.join(entry.reason.split())} ({entry.owner}{until}{limit})",
    )


def baseline_waivers(data: bytes, path: str) -> list[Waiver]:
    """Ops that the ratchet's list excuses; raises `UsageError` for what is no such list."""
    from karat.policy import ratchet  # noqa: PLC0415 - it brings the gate along

    return [
        _plain("baseline", "baseline", path, "baseline", op=op) for op in ratchet.parse(data, path)
    ]


def setting_waivers(old: PolicySettings, new: PolicySettings, path: str) -> list[Waiver]:
    """What the new settings no longer ask for; stricter ones are no waiver."""
    found = [_setting(path, "exclude", glob) for glob in _added(old.exclude, new.exclude)]
    found += [
        _setting(path, "namespaces", f"without {name}")
        for name in _added(new.namespaces, old.namespaces)
    ]
    found += [
        _setting(path, "devices", f"without {name}") for name in _added(new.devices, old.devices)
    ]
    if new.tests != old.tests:
        found.append(_setting(path, "tests", ", ".join(new.tests) or "every Python file"))
    if {k: set(v) for k, v in new.approvers.items()} != {
        k: set(v) for k, v in old.approvers.items()
    }:
        shown = "; ".join(
            f"{rule}: {', '.join(who)}" for rule, who in sorted(new.approvers.items())
        )
        found.append(_setting(path, "approvers", shown or "nobody"))
    for key in ("signers", "forge", "evidence"):
        if getattr(new, key) != getattr(old, key):
            found.append(_setting(path, key, getattr(new, key) or "by the CI's variables"))
    if old.complete and not new.complete:
        found.append(_setting(path, "complete", "false"))
    return found


def file_waiver(path: str, what: str, value: str) -> Waiver:
    """A file that says who may approve."""
    return _plain("policy", "setting", path, what, value=value, shown="who may approve")


def _added(old: Iterable[str], new: Iterable[str]) -> list[str]:
    before = set(old)
    return [item for item in new if item not in before]


def _setting(path: str, key: str, value: str) -> Waiver:
    return _plain("policy", "setting", path, f"[policy] {key}", value=value, shown=value)


def _plain(  # noqa: PLR0913 - the fields of a waiver
    rule: str, kind: str, path: str, about: str, *, op: str = "", value: str = "", shown: str = ""
) -> Waiver:
    return Waiver(rule=rule, kind=kind, path=path, about=about, op=op, value=value, shown=shown)
