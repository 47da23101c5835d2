"""Two sides → Diff: list the goldens of both, read, compare, group; and the reports of it."""
