"""Op tests: one operator, its inputs and expected outputs, checked forward and backward.

In: subclasses of `OpTest` in the manner of the original, or `OpSpec` declarations. Out: ordinary unittest
and pytest items, and events for whoever keeps evidence. Called by test files.
"""
