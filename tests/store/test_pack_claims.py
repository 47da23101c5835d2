"""What real capture sessions leave, and what packing makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from factories.captured import COMPARATOR, identity
from karat.captures.check import CaseToCapture
from karat.captures.session import Session, StagedCase
from karat.store.pack import Packed, PackOptions, pack
from karat.store.verify import VerifiedTarget, verify_target


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "captures", "nightly-1", run="r", root=tmp_path)


def staged(session: Session, test: str = "test_a", program: object = b"P") -> StagedCase:
    evidence = CaseToCapture(
        identity=identity(test), inputs=(1,), expected=np.ones(3), comparator=COMPARATOR, program=program
    )
    made = session.stage(evidence)
    assert isinstance(made, StagedCase)
    return made


def packed(session: Session, out: str = "out") -> Packed:
    where = str(session.directory.parent / out)
    return pack([str(session.directory)], PackOptions(output=where, combined="all.zip"))


def verified(session: Session) -> VerifiedTarget:
    """Verified as it is; what packing says of lost cases, verifying says, too."""
    told = verify_target(str(session.directory))
    assert [(f.kind, f.message) for f in told.findings] == [
        (f.kind, f.message) for f in packed(session, "again").findings
    ]
    return told


def test_a_session_that_ended_well(session: Session) -> None:
    assert session.publish(staged(session)) is None
    session.drop(staged(session, "test_fails"))
    session.close()
    told = packed(session)
    assert (told.exit_code, told.packed, told.findings) == (0, 1, ())
    assert verified(session).findings == ()


def test_a_session_that_died(session: Session) -> None:
    session.publish(staged(session))
    staged(session, "test_b")
    told = packed(session)
    (finding,) = told.findings
    assert (told.exit_code, finding.kind) == (1, "incomplete-case")
    assert "test_b" in finding.message
    assert "still staged" in finding.message
    assert verified(session).findings


def test_a_case_that_was_lost_afterwards(session: Session) -> None:
    for test in ("test_a", "test_b"):
        session.publish(staged(session, test))
    session.close()
    shutil.rmtree(next(session.directory.glob("models/xnnpack/*test_b*")))
    told = packed(session)
    (finding,) = told.findings
    assert (told.exit_code, finding.kind) == (1, "incomplete-case")
    assert "test_b" in finding.message
    assert verified(session).findings


def test_a_case_of_an_earlier_session_is_not_the_one_that_failed(session: Session, tmp_path: Path) -> None:
    session.publish(staged(session))
    later = Session(session.directory, "nightly-2", run="r", root=tmp_path)
    made = later.stage(CaseToCapture(identity=identity("test_a"), inputs=object(), expected=1, comparator=COMPARATOR))
    assert not isinstance(made, StagedCase)
    (finding,) = verified(later).findings
    assert "found only that of an earlier session" in finding.message


def test_a_capture_that_failed(session: Session) -> None:
    session.publish(staged(session))
    failed = session.stage(
        CaseToCapture(identity=identity("test_b"), inputs=object(), expected=np.ones(3), comparator=COMPARATOR)
    )
    assert not isinstance(failed, StagedCase)
    session.close()
    told = packed(session)
    (finding,) = told.findings
    assert (told.exit_code, finding.kind) == (1, "incomplete-case")
    assert "writing it failed" in finding.message
    assert verified(session).findings
