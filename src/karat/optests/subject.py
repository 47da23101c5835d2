"""An op test, once set up, as a flat function over named tensors of its framework.

A slot of `inputs` and `outputs` holds an array, an array with its sequence lengths (`(array, lod)`), or a list of named
arrays (`[("x0", array), …]`), as in Paddle. uint16 stands for bfloat16, the upper half of a float32; cutting off the lower
half is what test files expect of the conversions here: their expected values were made by them.

Inputs and attributes of the op become arguments of the function that stands for it. Where the framework knows the op's
own signature, its order decides, as in Paddle: the nth input or attribute of the op is the nth parameter of the
function. Where it is unknown, names decide (without regard to case and underscores: `transpose_X` is `transposex`),
then the order in which the test wrote them.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from karat.findings import UsageError
from karat.gradients.adapters import adapter_named
from karat.optests.frameworks import framework_of

Array = np.ndarray[Any, np.dtype[Any]]


def copy_bits_from_float_to_uint16(f: float) -> int:
    """The upper 16 bits of a float32."""
    return int(convert_float_to_uint16(np.float32(f)))


def convert_float_to_uint16(float_list: Any, data_format: str = "NCHW") -> Array:  # noqa: ARG001 - Paddle's signature; where an element lies does not change it
    """Floats as bfloat16 bits, cut off rather than rounded."""
    narrow = np.asarray(float_list, dtype=np.float32)
    bits = np.ascontiguousarray(narrow).view(np.uint32) >> np.uint32(16)
    return bits.astype(np.uint16).reshape(narrow.shape)


def convert_uint16_to_float(in_list: Any) -> Array:
    """bfloat16 bits as float32, exactly."""
    bits = np.asarray(in_list, dtype=np.uint16)
    wide = np.ascontiguousarray(bits).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(bits.shape)


class NamedArray(msgspec.Struct, frozen=True, kw_only=True):
    """One named array of a slot."""

    name: str
    array: Array  # with bfloat16 widened to float32, exactly
    dtype: str  # by karat's names

    @property
    def differentiable(self) -> bool:
        """Whether it may have a gradient: floats and complex numbers."""
        return self.array.dtype.kind in "fc" or self.dtype.startswith(("float", "bfloat"))


class ArraySlot(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `inputs` or `outputs`."""

    name: str
    members: tuple[NamedArray, ...]
    listed: bool = False  # it was written as a list, so the function gets one


def read_slots(values: Any, where: str) -> tuple[ArraySlot, ...]:
    """Every slot that is there; None stands for one that is left out."""
    if not isinstance(values, Mapping):
        text = f"{where}: expected a dict of arrays, found {type(values).__name__}"
        raise UsageError(text, next_command="write self.inputs = {'X': array} in setUp")
    found = []
    for name, value in values.items():
        if value is None:
            continue
        named = value if isinstance(value, list) and value else None
        if named and all(isinstance(one, np.ndarray) for one in named):
            named = [(f"{name}.{n}", one) for n, one in enumerate(named)]
        if named and all(isinstance(one, (tuple, list)) and len(one) == 2 and isinstance(one[0], str) for one in named):
            inside = tuple(read_array(inner, one, where) for inner, one in named)
            found.append(ArraySlot(name=name, members=inside, listed=True))
        else:
            found.append(ArraySlot(name=name, members=(read_array(name, value, where),)))
    slots = tuple(found)
    names = Counter(one.name for one in members(slots))
    for name in (one for one, times in names.items() if times > 1):
        raise UsageError(
            f"{where}: expected names that differ, found {name!r} {names[name]} times",
            next_command="give each array of a list a name of its own: [('x0', array), ('x1', array)]",
        )
    return slots


def in_double(slots: tuple[ArraySlot, ...]) -> tuple[ArraySlot, ...]:
    """The same with low precision as float64."""

    def wide(one: NamedArray) -> NamedArray:
        return replace(one, array=one.array.astype(np.float64), dtype="float64") if is_low(one.dtype) else one

    return tuple(replace(slot, members=tuple(map(wide, slot.members))) for slot in slots)


def is_low(dtype: str) -> bool:
    """Whether it is a float of less than 32 bits."""
    return dtype.startswith(("float16", "bfloat16", "float8"))


def members(slots: tuple[ArraySlot, ...]) -> Iterator[NamedArray]:
    for slot in slots:
        yield from slot.members


def read_array(name: str, value: Any, where: str) -> NamedArray:
    """One array, by its name; an error says where it was written."""
    # Of an array and its sequence lengths, the array: ops that take the others cannot be called as a function.
    pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], list)
    held = value[0] if pair else value
    array: Array | None = None  # rows of different lengths and several unnamed arrays are none
    if not (isinstance(held, tuple) and any(isinstance(one, np.ndarray) for one in held)):
        with suppress(ValueError):
            array = np.asarray(held)
    if array is None or array.dtype.kind not in "biufcV":
        found = "" if array is None else f" ({array.dtype})"
        text = f"{where}[{name!r}]: expected an array of numbers, found {type(held).__name__}{found}"
        raise UsageError(text, next_command="give a numpy array, (array, lod) or [(name, array), …]")
    if array.dtype == np.uint16:
        return NamedArray(name=name, array=convert_uint16_to_float(array), dtype="bfloat16")
    if array.dtype.kind == "V":  # ml_dtypes' small floats, which numpy does not count as numbers
        return NamedArray(name=name, array=array.astype(np.float32), dtype=str(array.dtype))
    return NamedArray(name=name, array=array, dtype=str(array.dtype))


# Parameters that ops do not have: Paddle leaves them at their defaults, and so does everybody.
PASSED_OVER = frozenset({"name", "dtype", "out", "output"})
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The order in which an op takes its inputs and attributes, and gives its outputs."""

    inputs: tuple[str, ...]
    attrs: tuple[str, ...]
    outputs: tuple[str, ...]


class InputArgument(msgspec.Struct, frozen=True):
    name: str


class AttributeArgument(msgspec.Struct, frozen=True):
    value: Any


Argument = InputArgument | AttributeArgument
ByParameter = dict[str, Argument | None]


class CallPlan(msgspec.Struct, frozen=True, kw_only=True):
    positional: tuple[Argument, ...] = ()
    keyword: Mapping[str, Argument] = msgspec.field(default_factory=dict)

    @property
    def slots(self) -> frozenset[str]:
        """The inputs that reach the function."""
        every = (*self.positional, *self.keyword.values())
        return frozenset(one.name for one in every if isinstance(one, InputArgument))


class OpSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What the test wrote; attributes that are None are left out."""

    op: str
    function: Callable[..., Any]
    framework: str
    inputs: tuple[ArraySlot, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[ArraySlot, ...]
    out_names: tuple[str, ...] | None = None  # `python_out_sig`: the outputs that the function gives, in order
    inner_names: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    """`python_out_sig_sub_name`: names of the tensors in a list that comes out."""
    widened: bool = False  # to float64, where the test's own precision has no kernel

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.inputs)

    def input(self, name: str) -> Argument | None:
        return InputArgument(name) if name in self.slots else None

    def either(self, name: str) -> Argument | None:
        """The attribute of that name, or the input that stands for it (`ShapeTensor`)."""
        return AttributeArgument(self.attrs[name]) if name in self.attrs else self.input(name)


def plan_call(given: OpSetup, signature: Signature | None) -> CallPlan:
    """How to call the test's function with what the test gives."""
    function = given.function
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []  # a C function that does not tell
    if [one.kind for one in parameters] == [inspect.Parameter.VAR_KEYWORD]:
        every = {name: given.either(name) for name in (*given.slots, *given.attrs)}
        return CallPlan(keyword={name: one for name, one in every.items() if one is not None})
    if not any(one.kind in _POSITIONAL for one in parameters):  # `*args` says nothing of names
        order = (*signature.inputs, *signature.attrs) if signature else (*given.slots, *given.attrs)
        return CallPlan(positional=tuple(one for one in map(given.either, order) if one is not None))

    def mismatch(what: str) -> UsageError:
        name = getattr(function, "__qualname__", repr(function))
        return UsageError(
            f"{given.op}: the test's inputs {_listed(given.slots)}, attrs {_listed(given.attrs)} do not fit python_api "
            f"{name}({', '.join(one.name for one in parameters)}): {what}",
            next_command="set self.python_api to a function whose parameters are the op's inputs and attrs, in order",
        )

    keyword: dict[str, Argument] = {}
    if signature is not None:
        found = _in_order(parameters, given, signature)
    else:
        found, left = _by_name(parameters, given)
        if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
            keyword = {name: AttributeArgument(given.attrs[name]) for name in left if name in given.attrs}
        if lost := [name for name in left if name not in keyword]:
            raise mismatch(f"nothing takes {_listed(lost)}")
    positional: list[Argument] = []
    gap = False  # positional until a default stands in between, by name from there on
    for parameter in parameters:
        value = found.get(parameter.name)
        if value is None:
            variable = parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
            if parameter.default is parameter.empty and not variable:
                raise mismatch(f"nothing is there for {parameter.name!r}")
            gap = gap or parameter.kind in _POSITIONAL
        elif gap or parameter.kind not in _POSITIONAL:
            keyword[parameter.name] = value
        else:
            positional.append(value)
    return CallPlan(positional=tuple(positional), keyword=keyword)


def _in_order(parameters: Sequence[inspect.Parameter], given: OpSetup, signature: Signature) -> ByParameter:
    """The op's nth is the function's nth; one that the test left out leaves its parameter at the default."""
    queue = [given.input(name) for name in signature.inputs]
    queue += [given.either(name) for name in signature.attrs]
    found: ByParameter = {}
    for parameter in parameters:
        name = parameter.name
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            found[name] = given.either(name)
        elif parameter.kind not in _POSITIONAL:
            continue
        elif name in PASSED_OVER:
            queue = queue[1:]
            found[name] = AttributeArgument(given.attrs[name]) if name in given.attrs else None
        else:
            found[name] = queue.pop(0) if queue else given.either(name)
    return found


def _by_name(parameters: Sequence[inspect.Parameter], given: OpSetup) -> tuple[ByParameter, list[str]]:
    """What goes where, and what nothing takes."""

    def folded(name: str) -> str:
        return name.replace("_", "").casefold()

    names = {folded(name): name for name in (*given.attrs, *given.slots)}
    found: ByParameter = {}
    for parameter in parameters:
        name = names.pop(folded(parameter.name), None)
        found[parameter.name] = given.either(name) if name is not None else None
    # What no name claimed goes where nothing came, in the order of the test: inputs, then attributes.
    left = [name for name in (*given.slots, *given.attrs) if name in names.values()]
    for parameter in parameters:
        free = found[parameter.name] is None and parameter.name not in PASSED_OVER
        if free and left and parameter.kind in _POSITIONAL:
            found[parameter.name] = given.either(left.pop(0))
    return found, left


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def signature_of(
    op: str, inputs: Mapping[str, list[Any]], outputs: tuple[str, ...], attrs: Mapping[str, Any]
) -> Signature | None:
    """The kernel's signature for these inputs and attributes; None for an op that Paddle has no kernel of.

    Must be called in dynamic mode. Which kernel it is may hang on which inputs are given, so tensors are needed.
    """
    import paddle
    from paddle.base import framework

    try:
        proto = framework.OpProtoHolder.instance().get_op_proto(op)
        setup = framework.canonicalize_attrs(dict(attrs), proto)
    except (ValueError, TypeError):
        setup = dict(attrs)
    blank = {name: [paddle.zeros([1])] for name in outputs}
    try:
        found = framework._dygraph_tracer()._get_kernel_signature(op, inputs, blank, setup)  # noqa: SLF001 - only the tracer knows the order
    except (RuntimeError, ValueError, TypeError, AttributeError):
        return None
    if not any(found):
        return None
    names = [tuple(str(name) for name in part) for part in found]
    return Signature(inputs=names[0], attrs=names[1], outputs=names[2])


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A flat function: named tensors in, named tensors out."""

    setup: OpSetup
    device: str
    names: tuple[str, ...]
    tensors: tuple[Any, ...]
    plan: CallPlan
    signature: Signature | None

    def __call__(self, *tensors: Any) -> dict[str, Any]:
        given = iter(tensors)
        slots: dict[str, Any] = {}
        for slot in self.setup.inputs:
            held = [next(given) for _ in slot.members]
            # Paddle hands over a list of one as the tensor in it, and its tests are written for that.
            slots[slot.name] = held if slot.listed and (len(held) != 1 or self.signature is None) else held[0]

        def value(argument: Argument) -> Any:
            return slots[argument.name] if isinstance(argument, InputArgument) else argument.value

        positional = [value(one) for one in self.plan.positional]
        keyword = {name: value(one) for name, one in self.plan.keyword.items()}
        return self.named(self.setup.function(*positional, **keyword))

    def outputs(self) -> dict[str, Any]:
        return self(*self.tensors)

    def named(self, result: Any) -> dict[str, Any]:
        """What the function gave, by the names of the op's outputs; lists by the names inside them."""
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        names = self.setup.out_names
        if names is None:
            signed = self.signature.outputs if self.signature is not None else ()
            names = signed or tuple(slot.name for slot in self.setup.outputs) or ("Out",)
        said = self.setup.out_names is not None or self.signature is not None
        listed = any(slot.listed for slot in self.setup.outputs if slot.name == names[0])
        if len(names) == 1 and len(found) != 1 and (listed or not said):
            found = [found]
        if len(found) > len(names) and not said:
            raise UsageError(
                f"{self.setup.op}: expected outputs {', '.join(names) or 'none'}, found {len(found)} results of python_api",
                next_command="set self.python_out_sig to the names of what python_api gives, in order",
            )
        flat: dict[str, Any] = {}
        for name, value in zip(names, found, strict=False):
            if isinstance(value, (tuple, list)):
                inner = self.expand(name)
                if name in self.setup.inner_names:
                    inner = tuple(self.setup.inner_names[name])[: len(value)]
                elif len(inner) != len(value):
                    inner = tuple(f"{name}.{n}" for n in range(len(value)))
                flat.update(zip(inner, value, strict=True))
            elif value is not None:
                flat[name] = value
        return flat

    def expand(self, name: str) -> tuple[str, ...]:
        """The names of an output's tensors: itself, or those of its list."""
        for slot in self.setup.outputs:
            if slot.name == name and slot.listed:
                return tuple(member.name for member in slot.members)
        return (name,)


def read_setup(test: Any) -> OpSetup:
    """What an op test's setUp left in it."""
    function, framework = getattr(test, "python_api", None), getattr(test, "framework", None)
    op = op_name(test)
    names = getattr(test, "python_out_sig", None)
    outputs = read_slots(getattr(test, "outputs", {}), "outputs")
    if function is None and hasattr(test, "op_type"):
        with suppress(ImportError):
            from paddle import _C_ops, _legacy_C_ops

            if hasattr(_legacy_C_ops, op) and not hasattr(_C_ops, op):  # one that it runs by name alone
                function, framework, names = partial(_trace, op, outputs), "paddle", [slot.name for slot in outputs]
    if not callable(function):
        raise UsageError(
            f"{op or type(test).__name__}: expected self.python_api, the function that runs the op, found {function!r}",
            next_command="set self.python_api in setUp: self.python_api = paddle.matmul",
        )
    if not framework:
        backward, paddle_style = getattr(test, "backward", None), hasattr(test, "op_type")
        framework = framework_of(function, backward=backward, paddle_style=paddle_style)
    return OpSetup(
        op=op,
        function=function,
        framework=framework,
        inputs=read_slots(getattr(test, "inputs", {}), "inputs"),
        attrs={k: v for k, v in (getattr(test, "attrs", None) or {}).items() if v is not None},
        outputs=outputs,
        out_names=None if names is None else tuple(names),
        inner_names=getattr(test, "python_out_sig_sub_name", None) or {},
    )


def _trace(op: str, outputs: tuple[ArraySlot, ...], /, **given: Any) -> list[Any]:
    """An op that Paddle has no function for (`cross_entropy2`), run by its name; in the order of the test's outputs."""
    import paddle
    from paddle.base import framework

    made = {slot.name: [paddle.zeros([0], dtype="float64") for _ in slot.members] for slot in outputs}
    held = {name: one if isinstance(one, list) else [one] for name, one in given.items()}
    inputs = {name: one for name, one in held.items() if one and isinstance(one[0], paddle.Tensor)}
    attrs = {name: one for name, one in given.items() if name not in inputs}
    framework._dygraph_tracer().trace_op(op, inputs, made, attrs)  # noqa: SLF001 - as Paddle's own op tests do
    return [made[slot.name] if slot.listed else made[slot.name][0] for slot in outputs]


def op_name(test: Any) -> str:
    """The op: `op_type` as in Paddle, or `op`; else the function's name; else nothing."""
    for attribute in ("op_type", "op"):
        value = getattr(test, attribute, None)
        if isinstance(value, str) and value:
            return value
    return str(getattr(getattr(test, "python_api", None), "__name__", ""))


def subject_at(setup: OpSetup, device: str, like: Any) -> Subject:
    """The subject with its tensors on a device; must be called within `frameworks.device_scope`."""
    adapter = adapter_named(setup.framework)
    flat = list(members(setup.inputs))
    tensors = tuple(adapter.from_numpy(one.array, one.dtype, like) for one in flat)
    signature = None
    if setup.framework == "paddle":
        given = iter(tensors)
        inputs = {slot.name: [next(given) for _ in slot.members] for slot in setup.inputs}
        outputs = tuple(slot.name for slot in setup.outputs)
        signature = signature_of(setup.op, inputs, outputs, setup.attrs)
    return Subject(
        setup=setup,
        device=device,
        names=tuple(one.name for one in flat),
        tensors=tensors,
        plan=plan_call(setup, signature),
        signature=signature,
    )
