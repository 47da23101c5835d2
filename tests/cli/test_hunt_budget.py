"""Budgets of a hunt, for real: runs, time, cost; what is said when one is spent, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factories.commands import karat_here
from factories.hunts import ran

# Thirty times slower from v011 on; the other metric is a coin thrown anew for each run.
NOISY = """
echo "$1" >> ran.txt
n=$(wc -l < ran.txt)
case "$1" in v00?|v010) echo "slow: 5.6$((n % 7))";; *) echo "slow: 161.$((n % 9))";; esac
awk -v n="$n" 'BEGIN { srand(n); rand(); print "coin:", exp(rand() * 3) }'
"""


def two_metrics(folder: Path, more: str = "", order: tuple[str, ...] = ("coin", "slow")) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "probe.sh").write_text(NOISY, encoding="utf-8")
    metrics = "".join(
        f"[[probe.metrics]]\nname = '{name}'\nregex = '{name}: (.*)'\nbetter = 'lower'\n" for name in order
    )
    listed = json.dumps([f"v{n:03d}" for n in range(20)])
    text = (
        f"stages = ['values']\n[probe]\ncommand = 'sh probe.sh {{value}}'\n{metrics}[values]\nlist = {listed}\n{more}"
    )
    (folder / "hunt.toml").write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_a_metric_that_is_all_noise_neither_hides_nor_delays_what_another_shows(tmp_path: Path) -> None:
    two_metrics(tmp_path)
    result = karat_here("hunt", "--json", "-", cwd=tmp_path)
    report = json.loads(result.out)
    changes = {c["metric"]: (c["change"]["old"]["id"], c["change"]["new"]["id"]) for c in report["culprits"]}
    assert changes["slow"] == ("v010", "v011")
    assert (result.code, report["state"]) == (1, "done")
    assert len(ran(tmp_path)) <= 60, "a sweep with three runs each, confirming included"


@pytest.mark.slow
def test_a_metric_that_is_not_settled_is_not_fine(tmp_path: Path) -> None:
    two_metrics(tmp_path, "[search]\nconfirmations = 0\nruns_per_point = 1\n", order=("flat", "coin"))
    plain = (tmp_path / "hunt.toml").read_text(encoding="utf-8")
    (tmp_path / "hunt.toml").write_text(plain.replace("better = 'lower'\n", ""), encoding="utf-8")
    # Changes at every fourth point: more than a single run of each can settle.
    (tmp_path / "probe.sh").write_text(
        "echo flat: 1\necho $1 >> ran.txt\n"
        "awk -v n=$(wc -l < ran.txt) -v at=${1#v} "
        "'BEGIN { srand(n); rand(); print \"coin:\", 1 + int(at / 4) % 2 + rand() / 4 }'\n",
        encoding="utf-8",
    )
    result = karat_here("hunt", "--json", "hunt.json", cwd=tmp_path)
    report = json.loads((tmp_path / "hunt.json").read_text(encoding="utf-8"))
    assert (result.code, report["state"], report["stages"][0]["unsettled"]) == (3, "done", ["coin"])
    assert "not settled" in result.out.splitlines()[0]
    assert "coin is not settled after 10 runs" in result.out
    assert len(ran(tmp_path)) == 10, "its share, since the other metric is settled"
