"""Tensors that lie on a device, on the CPU: the same code, held against the host's kernels, which are the reference."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from karat.bundles.manifest import Comparator, Environment, Identity, Role
from karat.bundles.values import Flat
from karat.bundles.write import NewCase, write_case
from karat.tensors.arrays import device_tensor, tensor_of
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Statistics, TensorNumbers, Tolerance
from karat.tensors.device.on_device import ROW, compare_on_device
from karat.tensors.dtypes import dtype_named
from karat.tensors.statistics import statistics

DTYPES = ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz")
WHOLE = ("int8", "uint8", "int16", "int32", "bool")
SUMS = ("mean_abs", "sqnr_db", "cosine")


def pair(torch: Any, name: str, odd: int = 0, elements: int = 5 * ROW + 77) -> tuple[Any, Any]:
    """Two tensors that differ a little; some elements are NaN, infinite, −0.0, and some have another sign."""
    draw = torch.Generator().manual_seed(len(name) + odd)
    if name in WHOLE:
        limits = (0, 2) if name == "bool" else (0, 200) if name == "uint8" else (-100, 100)
        sides = [torch.randint(*limits, (elements,), generator=draw) for _ in range(2)]
        return tuple(side.to(getattr(torch, name)) for side in sides)
    expected = torch.randn(elements, generator=draw)
    actual = expected * (1 + 1e-2 * torch.randn(elements, generator=draw))
    actual[::3] = expected[::3]
    expected[7::97], actual[9::101] = 0.0, -0.0
    for n in range(odd):
        at = int(torch.randint(elements, (1,), generator=draw))
        side = (expected, actual)[n % 2]
        side[at] = (nan, inf, -inf)[n % 3]
        if n % 5 == 4:
            expected[at] = actual[at] = (nan, -inf)[n % 2]
    return expected.to(getattr(torch, name)), actual.to(getattr(torch, name))


def assert_same(found: TensorNumbers, reference: TensorNumbers) -> None:
    """Counts, places and extremes exactly; the host takes its sums in float32 where it may."""
    assert {**msgspec.structs.asdict(found), **dict.fromkeys(SUMS)} == {
        **msgspec.structs.asdict(reference),
        **dict.fromkeys(SUMS),
    }
    for field in SUMS:
        one, other = getattr(found, field), getattr(reference, field)
        assert one == (None if other is None else pytest.approx(other, rel=2e-6)), field


def numbers(one: Any, other: Any, **options: Any) -> tuple[TensorNumbers, TensorNumbers]:
    sides = [(device_tensor(value), tensor_of(value)) for value in (one, other)]
    reports = [compare_tensors("x", *side, **options) for side in zip(*sides, strict=True)]
    assert [f.message for f in reports[0].findings] == [f.message for f in reports[1].findings]
    assert reports[0].numbers is not None
    assert reports[1].numbers is not None
    return reports[0].numbers, reports[1].numbers


@pytest.mark.parametrize("odd", [0, 40])
@pytest.mark.parametrize("name", [*DTYPES, *WHOLE])
def test_the_numbers_of_a_device_are_those_of_the_host(torch: Any, name: str, odd: int) -> None:
    one, other = pair(torch, name, odd)
    for options in ({}, {"rtol": 1e-2, "atol": 1e-3, "equal_nan": True, "integers": True}):
        assert_same(*numbers(one, other, **options))
    assert_same(*numbers(one, one.clone()))


def test_all_of_it_is_odd_or_nothing_is_there(torch: Any) -> None:
    zeros, nans = torch.zeros(3 * ROW), torch.full((3 * ROW,), nan)
    ramp = torch.arange(3 * ROW, dtype=torch.float32)
    for one, other in ((zeros, zeros), (nans, nans), (zeros, nans), (nans, ramp), (zeros, ramp), (ramp, -ramp)):
        assert_same(*numbers(one, other))


def test_what_a_device_does_not_do_the_host_does(torch: Any) -> None:
    wide = torch.full((2 * ROW,), 1e200, dtype=torch.float64), torch.full((2 * ROW,), 1e-180, dtype=torch.float64)
    for one, other in (
        wide,
        (wide[1], wide[1] * 2),
        (torch.ones(ROW, dtype=torch.int64),) * 2,
        (zero := torch.zeros(3), zero),
    ):
        kind = dtype_named(str(one.dtype).removeprefix("torch."))
        assert compare_on_device(device_tensor(one), device_tensor(other), kind, Tolerance(rtol=0, atol=0)) is None
        assert_same(*numbers(one, other))


def test_views_are_compared_in_their_own_order(torch: Any) -> None:
    one, other = pair(torch, "float32", elements=ROW * 6)
    assert_same(*numbers(one.view(6, ROW).t(), other.view(6, ROW).t()))


@pytest.mark.parametrize("name", [*DTYPES, *WHOLE])
def test_statistics_of_a_device_are_those_of_the_host(torch: Any, name: str) -> None:
    for value in (pair(torch, name, odd=20)[0], torch.zeros(9).to(getattr(torch, name))):
        found, reference = statistics(device_tensor(value)), statistics(tensor_of(value))
        assert found == msgspec.structs.replace(reference, mean=found.mean, l2=found.l2)
        assert (found.mean, found.l2) == pytest.approx((reference.mean, reference.l2), rel=1e-9)


def test_statistics_that_float64_cannot_square_are_the_hosts(torch: Any) -> None:
    for size in (1e200, 1e-200):
        value = torch.full((99,), size, dtype=torch.float64)
        assert statistics(device_tensor(value)) == statistics(tensor_of(value))
    assert statistics(device_tensor(torch.full((9,), nan))) == Statistics(nan=9)


def test_a_case_of_device_tensors_is_the_case_of_the_hosts(torch: Any, tmp_path: Path) -> None:
    one, other = pair(torch, "float32", elements=(20 << 20) // 4)
    made = []
    for name, form in (("device", device_tensor), ("host", tensor_of)):
        flats = [
            Flat(role=cast("Role", role), structure={"tensor": role}, tensors={role: form(value)})
            for role, value in (("input", one), ("expected", other.to(torch.bfloat16)))
        ]
        case = NewCase(
            identity=Identity(suite="s", flow="f", test="t"),
            inputs=flats[0],
            expected=flats[1],
            comparator=Comparator(name="karat"),
            environment=Environment(platform="linux", machine="any", python="3"),
            session="1",
            created="2026-01-01T00:00:00Z",
            raw=True,
        )
        (tmp_path / name).mkdir()
        write_case(tmp_path / name, case)
        files = sorted(file for file in (tmp_path / name).rglob("*") if file.is_file() and file.suffix != ".json")
        assert len(files) == 5
        made.append([file.read_bytes() for file in files])
    assert made[0] == made[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn"])
def test_the_compiled_sweep_gives_the_same_numbers(torch: Any, name: str) -> None:
    one, other = pair(torch, name, odd=9)
    given, kind = Tolerance(rtol=1e-2, atol=1e-3), dtype_named(name)
    found = []
    for compiled in (True, False):
        tally = compare_on_device(device_tensor(one), device_tensor(other), kind, given, compiled=compiled)
        assert tally is not None
        found.append(tally.numbers((len(one),), with_ulps=True))
    assert_same(*found)
