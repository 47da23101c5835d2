"""Ask for the entry points of a group as everybody did before 5.0."""

import warnings

import importlib_metadata

warnings.simplefilter("ignore")
print(len(importlib_metadata.entry_points().get("console_scripts", [])))
