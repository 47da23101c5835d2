"""Gradients: an operator goes in, evidence about its backward comes out.

In: a function of any framework (`adapters`), inputs, what to compare. Out: a `GradReport`. Called by
tests (`karat.gradcheck`), by `optests`, and through them by pytest. The mathematics sees numpy arrays
only (`adapters.framework_problem`); frameworks are seen by adapters only.

The room is not called `gradcheck`, because `karat.gradcheck` is the function that people call.
"""
