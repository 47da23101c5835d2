"""Replay: the recorded program with the recorded inputs on this machine, held against the recorded outputs.

In: a place with cases, and a function or a command that runs a program. Out: an outcome per case, as text,
JSON, JUnit or pytest items. Called by `cli` and the pytest plugin.
"""
