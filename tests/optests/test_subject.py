from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.optests.subject import ArraySlot, AttributeArgument, CallPlan, InputArgument, OpSetup, Signature, plan_call


def matmul(x: Any, y: Any, transpose_x: bool = False, name: str | None = None) -> Any:  # noqa: FBT001, FBT002
    return x, y, transpose_x, name


def total(x: Any, axis: Any = None, dtype: Any = None, keepdim: bool = False) -> Any:  # noqa: FBT001, FBT002
    return x, axis, dtype, keepdim


def given_by(function: Any, *slots: str, **attrs: Any) -> OpSetup:
    inputs = tuple(ArraySlot(name=name, members=()) for name in slots)
    return OpSetup(op="op", function=function, framework="numpy", inputs=inputs, attrs=attrs, outputs=())


def called(made: CallPlan) -> tuple[list[str], dict[str, str]]:
    def word(one: Any) -> str:
        return f"<{one.name}>" if isinstance(one, InputArgument) else repr(one.value)

    return [word(one) for one in made.positional], {k: word(v) for k, v in made.keyword.items()}


def test_names_decide_without_regard_to_case_and_underscores() -> None:
    made = plan_call(given_by(matmul, "Y", "X", transpose_X=True), None)
    assert called(made) == (["<X>", "<Y>", "True"], {})


def test_what_no_name_claims_goes_where_nothing_came_in_order() -> None:
    made = plan_call(given_by(matmul, "Input", "Other", transpose_x=True), None)
    assert called(made) == (["<Input>", "<Other>", "True"], {})


def test_the_ops_own_order_decides_where_it_is_known() -> None:
    signature = Signature(inputs=("X",), attrs=("dim", "out_dtype", "keep_dim"), outputs=("Out",))
    made = plan_call(given_by(total, "X", keep_dim=True, dim=[0]), signature)
    assert called(made) == (["<X>", "[0]"], {"keepdim": "True"})


def test_an_input_may_stand_for_an_attribute() -> None:
    signature = Signature(inputs=("X",), attrs=("AxisTensor",), outputs=("Out",))
    made = plan_call(given_by(total, "X", "AxisTensor"), signature)
    assert called(made) == (["<X>", "<AxisTensor>"], {})
    assert made.slots == {"X", "AxisTensor"}


def test_beyond_the_ops_signature_names_decide() -> None:
    signature = Signature(inputs=("X",), attrs=(), outputs=("Out",))
    made = plan_call(given_by(total, "X", keepdim=True), signature)
    assert called(made) == (["<X>"], {"keepdim": "True"})


def test_a_function_of_anything_gets_all_of_it_in_order() -> None:
    assert called(plan_call(given_by(lambda *args: args, "A", "B", c=1), None)) == (["<A>", "<B>", "1"], {})


def test_a_function_that_tells_nothing_gets_the_ops_order() -> None:
    signature = Signature(inputs=("X", "Y"), attrs=(), outputs=("Out",))
    made = plan_call(given_by(getattr, "Y", "X"), signature)
    assert called(made)[0] == ["<X>", "<Y>"]


@pytest.mark.parametrize("signature", [None, Signature(inputs=("X",), attrs=(), outputs=())])
def test_a_parameter_without_a_value_names_both_sides(signature: Signature | None) -> None:
    with pytest.raises(UsageError) as caught:
        plan_call(given_by(matmul, "X"), signature)
    message = str(caught.value)
    assert "inputs X, attrs none" in message
    assert "matmul(x, y, transpose_x, name)" in message
    assert "nothing is there for 'y'" in message


def test_an_input_that_nothing_takes_is_an_error() -> None:
    with pytest.raises(UsageError, match="nothing takes Extra"):
        plan_call(given_by(lambda x: x, "X", "Extra"), None)


names = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)


@given(names, st.randoms(use_true_random=False))
def test_the_order_of_writing_does_not_matter_where_names_fit(parameters: list[str], random: Any) -> None:
    def op(**kwargs: Any) -> Any:
        return kwargs

    op.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in parameters]
    )
    written = list(parameters)
    random.shuffle(written)
    made = plan_call(given_by(op, *(one.upper() for one in written)), None)
    assert [one.name for one in made.positional if isinstance(one, InputArgument)] == [
        one.upper() for one in parameters
    ]
    assert not any(isinstance(one, AttributeArgument) for one in made.positional)
