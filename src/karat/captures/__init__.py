"""Captures: a passing test leaves a bundle; the pytest plugin and the plain API.

In: actual, expected, inputs and program of a test. Out: a case folder under the capture directory, written
only after the comparison passed and published only after the test did. Called by pytest (entry point
`pytest11`), unittest and scripts (`karat.capture`, `karat.check_and_capture`). The room is not named
`capture`, because `karat.capture` is the function.
"""
