"""Right functions at points with zeros, ties and mixed scales: how many checks pass, and whether any fails.

PYTHONPATH=tests python benchmarks/awkward_points.py --seeds 50
"""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial

import torch

import karat
from factories.awkward_points import FUNCTIONS, points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    found: Counter[str] = Counter()
    for seed in range(asked.first, asked.first + asked.seeds):
        for kind, point in points(seed).items():
            for name, fn in FUNCTIONS.items():
                report = karat.gradcheck(partial(fn, torch), (torch.tensor(point),), seed=seed)
                found[report.verdict] += 1
                if report.verdict == "FAIL":
                    print(f"{name} at {kind}, seed {seed}: {report.reason}", flush=True)
    print(f"{asked.seeds} seeds: {', '.join(f'{n:,} {verdict}' for verdict, n in found.most_common())}")


if __name__ == "__main__":
    main()
