"""Nested values: what comes back is what went, and what cannot is named."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter, OrderedDict, UserDict, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from importlib.util import LazyLoader, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from factories.nested import ARRAYS, CLASSES, Box, Colour, Derived, ModelOutput, Pair, nested, same
from karat.bundles.structure import flatten, restore, tensor_names
from karat.bundles.values import DEEPEST, Record, Restored
from karat.tensors.tensor import CannotStore, Damaged, Tensor


def through(value: Any, classes: tuple[type, ...] = CLASSES) -> Restored:
    """There and back, through the bytes of JSON."""
    flat = flatten(value, "input")
    structure = msgspec.json.decode(msgspec.json.encode(flat.structure))
    tensors = {name: t for name, t in flat.tensors.items() if isinstance(t, Tensor)}
    assert Counter(tensor_names(structure)) == Counter([*tensors])
    return restore(structure, tensors, classes=classes)


@pytest.mark.slow
@given(nested(ARRAYS))
@example({"a/b": np.ones(1), "a": {"b": np.ones(2)}, 0: np.ones(3), "0": np.ones(4)})
@example([math.nan, -math.nan, -0.0, math.inf, 5e-324, 2**53 + 1, -(2**63), 10**5000])
@example("\ud800")
def test_what_comes_back_is_what_went(value: Any) -> None:
    restored = through(value)
    assert restored.findings == ()
    assert same(restored.value, value)


@given(nested(ARRAYS))
def test_without_its_classes_nothing_is_lost(value: Any) -> None:
    """A Record has all the fields, and taken apart again it is what it was."""
    flat = flatten(value, "input")
    tensors = {name: t for name, t in flat.tensors.items() if isinstance(t, Tensor)}
    hidden = _hidden(flat.structure)
    again = flatten(restore(hidden, tensors).value, "input")
    # Elements of sets are in the order of their JSON, and that holds the names of classes.
    assert _sorted(again.structure) == _sorted(hidden)
    assert again.tensors.keys() == flat.tensors.keys()


def _sorted(node: Any) -> Any:
    if isinstance(node, list):
        return [_sorted(each) for each in node]
    if isinstance(node, dict):
        made = {key: _sorted(value) for key, value in node.items()}
        kind = next(iter(made))
        if kind in {"set", "frozenset"}:
            made[kind] = sorted(made[kind], key=msgspec.json.encode)
        return made
    return node


def _hidden(node: Any) -> Any:
    """The structure as of classes that this process does not have."""
    if isinstance(node, list):
        return [_hidden(each) for each in node]
    if isinstance(node, dict):
        return {
            key: f"gone:{value}"
            if key in {"dataclass", "namedtuple", "enum"} and isinstance(value, str)
            else _hidden(value)
            for key, value in node.items()
        }
    return node


def test_names_of_tensors_say_where_they_are() -> None:
    flat = flatten(({"mask": np.ones(1)}, [np.ones(2)], Box(np.ones(3))), "input")
    assert [*flat.tensors] == ["input/0/mask", "input/1/0", "input/2/content"]
    assert [*flatten(np.ones(1), "expected").tensors] == ["expected"]


@given(st.lists(st.text(st.characters(), max_size=300), unique=True, max_size=6))
def test_names_of_tensors_are_unique_and_fit_into_a_line(keys: list[str]) -> None:
    flat = flatten({key: np.ones(1) for key in keys}, "input")
    assert len(flat.tensors) == len(keys)
    for name in flat.tensors:
        name.encode()
        assert not set(name) & set("\t\n\r")
        assert name.count("/") == 1


class Odd:
    pass


@dataclass
class Grown:
    a: int


@dataclass
class Cached:
    a: int

    @cached_property
    def twice(self) -> int:
        return 2 * self.a


class OwnDict(dict[str, int]):
    pass


class OwnList(list[int]):
    pass


class OwnText(str):
    __slots__ = ()


class OwnPair(Pair):
    """Has room for more than its fields."""


def grown() -> Grown:
    made = Grown(1)
    made.more = 2  # type: ignore[attr-defined]
    return made


def marked() -> OwnPair:
    made = OwnPair(1)
    made.more = 2  # type: ignore[attr-defined]
    return made


def holding_itself() -> list[Any]:
    made: list[Any] = [1]
    made.append((made,))
    return made


def deep(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((1, {"mask": Odd()}), ("inputs[1]['mask']", "Odd")),
        (Box(Odd()), ("inputs.content", "Odd")),
        ([Fraction(1, 2)], ("inputs[0]", "fractions.Fraction")),
        (holding_itself(), ("inputs[1][0]", "holds itself")),
        (deep(DEEPEST + 1), ("levels deep",)),
        (OwnDict(a=1), ("inputs", "OwnDict")),
        (OwnList([1]), ("OwnList",)),
        (OwnText("x"), ("OwnText",)),
        (marked(), ("OwnPair", "'more'")),
        (UserDict(a=1), ("UserDict",)),
        (grown(), ("inputs", "'more'", "no field")),
        (defaultdict(Odd), ("defaultdict",)),
        ({np.float32(1)}, ("in a set",)),
        ((np.array([object()]),), ("inputs[0]", "object")),
        (len, ("builtin_function_or_method",)),
        (Odd, ("builtins.type",)),
        (float, ("builtins.type",)),
        ({Odd(): 1}, ("inputs[entry 0]", "Odd")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_stored_is_named(value: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(CannotStore) as caught:
        flatten(value, "input")
    for word in words:
        assert word in str(caught.value)


def test_the_deepest_value_is_stored_and_comes_back() -> None:
    assert same(through(deep(DEEPEST)).value, deep(DEEPEST))


def test_a_cache_is_not_content() -> None:
    value = Cached(2)
    assert value.twice == 4
    restored = through(value, (Cached,))
    assert restored.value == value
    assert restored.value.twice == 4


def test_a_field_that_was_never_set_stays_so() -> None:
    restored = through(Derived(content=1)).value
    assert type(restored) is Derived
    assert not hasattr(restored, "later")


def test_outputs_of_model_libraries_come_back_as_mapping_and_object() -> None:
    restored = through(ModelOutput(logits=np.ones(2))).value
    assert type(restored) is ModelOutput
    assert [*restored] == ["logits"]
    assert restored["logits"] is restored.logits
    assert restored.loss is None


def test_a_mapping_with_more_than_its_fields_is_refused() -> None:
    value = ModelOutput(loss=1)
    OrderedDict.__setitem__(value, "extra", 2)
    with pytest.raises(CannotStore, match="'extra'"):
        flatten(value, "input")


def test_shared_objects_come_back_as_copies() -> None:
    one = np.ones(2)
    first, second = through((one, one)).value
    assert first is not second
    assert same(first, second)


def test_no_constructor_runs() -> None:
    ran: list[str] = []

    @dataclass
    class Loud:
        a: int

        def __post_init__(self) -> None:
            ran.append("ran")

    value = Loud(1)
    ran.clear()
    restored = through(value, (Loud,)).value
    assert (type(restored), restored.a, ran) == (Loud, 1, [])


def test_no_module_is_imported_because_data_names_it() -> None:
    assert "this" not in sys.modules
    structure = {"dataclass": "this:Zen", "fields": [["a", 1]]}
    restored = restore(structure, {})
    assert "this" not in sys.modules
    assert isinstance(restored.value, Record)
    assert restored.value["a"] == 1
    (finding,) = restored.findings
    assert (finding.kind, finding.severity) == ("unsafe-type", "info")


def test_a_module_that_waits_to_be_loaded_is_not_loaded_because_data_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "karat_lazy.py"
    source.write_text("import sys\nsys.karat_was_here = True\n", encoding="utf-8")
    spec = spec_from_file_location("karat_lazy", source)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "karat_lazy", module)
    spec.loader.exec_module(module)
    restored = restore({"dataclass": "karat_lazy:Thing", "fields": [["a", 1]]}, {})
    assert isinstance(restored.value, Record)
    assert not hasattr(sys, "karat_was_here")


def test_a_class_is_not_found_under_a_name_that_is_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    structure = {"dataclass": "math:Box", "fields": [["content", 1], ["label", "a"]]}
    monkeypatch.setattr(math, "Box", Box, raising=False)
    assert isinstance(restore(structure, {}).value, Record)
    assert isinstance(restore(structure, {}, classes=(Box,)).value, Box)  # given is given


@pytest.mark.parametrize(
    "structure",
    [
        {"dataclass": "subprocess:Popen", "fields": [["args", "touch x"]]},
        {"namedtuple": "os:system", "fields": [["command", "touch x"]]},
        {"structseq": "builtins:tuple", "fields": [["0", 1]]},
        {"enum": "builtins:int", "member": "RED", "value": 1},
        {"dataclass": "factories.nested:Box", "fields": [["content", 1], ["other", 2]]},
        {"namedtuple": "factories.nested:Pair", "fields": [["left", 1]]},
        {"enum": "factories.nested:Colour", "member": "RED", "value": 2},
        {"enum": "factories.nested:Colour", "member": "BLUE", "value": 1},
        {"dataclass": "factories.nested:ModelOutput", "fields": [["loss", 1], ["logits", 2]]},
    ],
    ids=lambda structure: str(next(iter(structure.values()))),
)
def test_only_what_really_is_such_a_class_becomes_one(structure: dict[str, Any]) -> None:
    restored = restore(structure, {}, classes=(Box, Colour, Pair, ModelOutput))
    assert isinstance(restored.value, Record)
    assert [finding.kind for finding in restored.findings] == ["unsafe-type"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "tensor",
                    "scalar",
                    "list",
                    "tuple",
                    "dict",
                    "set",
                    "slice",
                    "range",
                    "int",
                    "float",
                    "complex",
                    "text",
                    "bytes",
                    "dataclass",
                    "namedtuple",
                    "fields",
                    "items",
                    "enum",
                    "member",
                    "value",
                    "factory",
                    "defaultdict",
                    "torch.Size",
                    "torch.dtype",
                    "unset",
                    "numpy.dtype",
                    "structseq",
                    "ordereddict",
                    "frozenset",
                    "ellipsis",
                    "bytearray",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(JSON)
@example({"list": {"a": 1}})
@example({"range": [0, 1, 0]})
@example({"range": ["a", 1, 2]})
@example({"dict": [[{"list": []}, 1]]})
@example({"set": [1, 1]})
@example({"dict": [[1, 1], [1, 2]]})
@example({"float": "1"})
@example({"numpy.dtype": ["float32", "middle"]})
@example({"structseq": 1, "fields": [[1, 2]]})
@example({"dataclass": "a:b", "fields": [["x", {"unset": True}]], "items": ["x"]})
def test_a_structure_that_nobody_wrote_is_damage_or_a_value_and_never_a_crash(node: Any) -> None:
    try:
        restored = restore(node, {})
    except Damaged:
        return
    assert isinstance(restored, Restored)


def test_a_structure_without_end_is_damage() -> None:
    node: Any = 1
    for _ in range(5000):
        node = {"list": [node]}
    with pytest.raises(Damaged, match="levels"):
        restore(node, {})


@pytest.mark.slow
def test_the_same_value_gives_the_same_structure_in_every_process() -> None:
    program = (
        "from karat.bundles.structure import flatten\n"
        "import msgspec\n"
        "value = ({'b', 'a', 'c', 1, None, 2.5, (1, 'x')}, frozenset('hello'), {'z': 1, 'a': 2})\n"
        "print(msgspec.json.encode(flatten(value, 'input').structure).decode())\n"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(made) == 1
