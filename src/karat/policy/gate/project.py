"""A project's policy: its exemptions, baseline and namespaces, read; and its baseline, rewritten."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from msgspec import structs

from karat.config import Config
from karat.findings import UsageError
from karat.policy.evidence import Merged
from karat.policy.exemptions import ByOp, read, read_named
from karat.policy.gate import baseline as baselines
from karat.policy.gate.decision import Policy
from karat.policy.gate.operators import walk
from karat.system.command import Command


def policy_of(  # noqa: PLR0913 - all that decides which policy holds
    config: Config,
    folder: Path,
    *,
    today: date,
    complete: bool,
    again: Command | None = None,
    exemptions: str | None = None,
    devices: tuple[str, ...] = (),
) -> Policy:
    """The policy that holds in a folder; namespaces are imported only where all operators are judged.

    `exemptions` and `devices` replace what the configuration says; `again` is the command as it was typed.
    """
    settings = config.policy
    root = config.file.parent if config.file else folder
    walked = walk(settings.namespaces if complete else (), folder=root, exclude=settings.exclude)
    if exemptions is not None:
        file = read_named(exemptions, command=Command("karat", "policy", "gate"))
    else:
        file = read(root / settings.exemptions, settings.exemptions)
    return Policy(
        exemptions=file,
        devices=devices or settings.devices,
        today=today,
        complete=complete,
        findings=walked.findings,
        baseline=baselines.OpBaseline(
            ops=walked.ops,
            functions=walked.functions,
            sure=not walked.findings,
            root=root,
            path=settings.baseline,
            listed=baselines.read(root / settings.baseline, settings.baseline),
            again=again or Command("karat", "policy", "gate", "--complete"),
        ),
    )


def imports(config: Config, folder: Path) -> str:
    """The modules that judging all operators imports, and from where, for people; empty where there are none."""
    root = config.file.parent if config.file else folder
    return f"{', '.join(config.policy.namespaces)} (found from {root})" if config.policy.namespaces else ""


def rewritten(policy: Policy, merged: Merged, added: Sequence[str], *, shorten: bool) -> Policy:
    """The same policy with a shorter baseline, or with more operators on it; the file has been written."""
    baseline = policy.baseline
    if added and not policy.complete:
        text = "--add-to-baseline needs --complete: part of a suite does not show what lacks evidence"
        raise UsageError(text, next_command=baseline.again.plus("--complete", "--add-to-baseline", "OP"))
    active = ByOp(one for one in policy.exemptions.entries if not one.has_expired(policy.today))
    found = [*baselines.judge_ops(merged, active, baseline, complete=policy.complete)]
    stale = {one.metric for one in found if one.kind == "baseline-stale" and shorten}
    lacking = [one.metric for one in found if one.kind == "new-op" and one.metric]
    listed = set(baseline.listed)
    ops = listed - stale | {*baselines.additions(baseline, added, lacking)}
    if ops != listed:
        baselines.write(baseline.root / baseline.path, ops - listed, listed - ops)
    return structs.replace(policy, baseline=structs.replace(baseline, listed=tuple(sorted(ops))))


def journal_folders(named: Sequence[str], config: Config) -> list[Path]:
    """The folders with journals that were named, or the one that the configuration names."""
    if named or config.file is None:
        return [Path(word) for word in named or (config.policy.evidence,)]
    return [Path(os.path.relpath(config.file.parent / config.policy.evidence))]
