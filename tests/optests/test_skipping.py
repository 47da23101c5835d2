from __future__ import annotations

from typing import Any

import pytest

from karat import skip_check_grad_ci
from karat.findings import UsageError
from karat.optests.lifecycle import skip_check_inplace_ci, skip_reason


def test_a_class_speaks_for_itself_and_not_for_its_children() -> None:
    @skip_check_grad_ci(reason="gives indices")
    class Parent:
        pass

    class Child(Parent):
        pass

    assert skip_reason(Parent) == "gives indices"
    assert skip_reason(Child) is None


def test_nothing_is_written_into_the_class() -> None:
    class Plain:
        pass

    before = set(vars(Plain))
    skip_check_grad_ci("by position, too")(Plain)
    assert set(vars(Plain)) == before
    assert skip_reason(Plain) == "by position, too"


@pytest.mark.parametrize("decorator", [skip_check_grad_ci, skip_check_inplace_ci])
@pytest.mark.parametrize("reason", [None, "", "   ", 3, True])
def test_a_reason_is_required(decorator: Any, reason: Any) -> None:
    with pytest.raises(UsageError, match="expected reason="):
        decorator(reason=reason)


def test_the_decorator_without_a_call_is_refused() -> None:
    class Plain:
        pass

    with pytest.raises(UsageError, match="expected reason="):
        skip_check_grad_ci(Plain)  # type: ignore[arg-type]
