"""A repository with Megatron's goldens and a CI run beside it: for what a refresh takes, refuses and says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from factories.listed import Listed, artifact
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.config import load
from karat.findings import Finding, Severity
from karat.refreshes.jobs import RefreshOptions
from karat.refreshes.refresh import refresh
from karat.refreshes.report import RefreshReport
from karat.sources.source import Artifact, CiJob as Job

OLD, NEW = golden_text(curves(1)), golden_text(curves(2))
H100, GB200 = ["dgx-h100"], ["dgx-gb200"]
LOCK = "tests/functional_tests/test_cases/goldens.lock.json"
Contents = Mapping[str, bytes | str]


def options(scope: str = "all", **more: object) -> RefreshOptions:
    config = load(Path("/"), preset="megatron-lm")
    return RefreshOptions(
        scope=scope,
        settings=config.refresh,
        globs=config.paths,
        cases=config.cases,
        rules=config.rule_book(),
        date="2026-01-01T00:00:00Z",
        **more,  # type: ignore[arg-type]
    )


def logs(case: str, *, attempt: int = 1, uuid: str = "ab12") -> Artifact:
    return artifact(f"logs-{case}-7-{uuid}", attempt=attempt)


def member(platform: str = "dgx_h100", again: str = "") -> str:
    return f"golden_values_dev_{platform}{again}.json"


class World:
    """A repository with a golden per case and platform, and a CI run beside it."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        self.repository = repository
        self.folder = folder
        for case in ("a", "b"):
            for platform in ("dgx_h100", "dgx_gb200"):
                repository.write(golden_path(case, platform), golden_text(curves(1)))
        repository.commit()

    def refresh(
        self,
        jobs: Sequence[Job],
        artifacts: Sequence[tuple[Artifact, Contents]],
        opts: RefreshOptions | None = None,
        failing: Mapping[str, Finding] | None = None,
    ) -> RefreshReport:
        source = Listed(self.folder, jobs=jobs, artifacts=artifacts, failing=failing)
        return refresh(source, self.repository.root, opts or options())

    def read(self, case: str, platform: str = "dgx_h100") -> str:
        return (self.repository.root / golden_path(case, platform)).read_text()

    def status(self) -> list[str]:
        return sorted(self.repository.git("status", "--porcelain", "-uall").split("\n"))[1:]


def kinds(result: RefreshReport, severity: Severity = Severity.FAIL) -> list[str]:
    return [f.kind for f in result.all_findings() if f.severity is severity]
