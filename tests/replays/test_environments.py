from __future__ import annotations

import platform
from importlib import metadata

import pytest

from karat.bundles.manifest import Environment
from karat.replays.replay import environment_differences, same_version

HERE = Environment(
    platform=f"{platform.system()} {platform.release()}",
    machine=platform.machine(),
    python=platform.python_version(),
    packages={"numpy": metadata.version("numpy")},
)


def other(**changes: object) -> Environment:
    fields = {name: getattr(HERE, name) for name in HERE.__struct_fields__}
    return Environment(**{**fields, **changes})


def test_the_same_machine_is_not_worth_a_word() -> None:
    assert list(environment_differences([HERE, other(platform=f"{platform.system()} 1.2")], packages=True)) == []


def test_all_that_differs_is_one_finding() -> None:
    (found,) = environment_differences(
        [HERE, other(machine="riscv64"), other(machine="riscv64", packages={"numpy": "0.1"})], packages=True
    )
    assert "machine riscv64, here" in found.message
    assert "(2 of 3 cases)" in found.message
    assert f"numpy 0.1, here {metadata.version('numpy')}" in found.message
    assert found.severity == "info"


def test_packages_matter_to_functions_alone() -> None:
    elsewhere = other(python="3.9.1", packages={"numpy": "0.1", "no-such-thing": "1"})
    assert list(environment_differences([elsewhere], packages=False)) == []
    (found,) = environment_differences([elsewhere], packages=True)
    assert "no-such-thing 1, here none" in found.message
    assert "Python 3.9.1" in found.message


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("2.13.0+cpu", "2.13.0", True),
        ("2.13.0+cpu", "2.13.0+cu128", False),
        ("2.13.0", "2.13.1", False),
        ("2.13.0+cpu", "2.13.0+cpu", True),
    ],
)
def test_a_suffix_counts_where_both_have_one(one: str, two: str, same: bool) -> None:  # noqa: FBT001
    assert same_version(one, two) is same_version(two, one) is same
