"""Op tests: one operator, its inputs and expected outputs, checked forward and backward.

In: subclasses of `OpTest` as for Paddle's `op_test.OpTest`, or `OpSpec` declarations. Out: ordinary unittest
and pytest items, and events for those who keep evidence. Called by test files.
"""
