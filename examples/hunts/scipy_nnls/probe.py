"""How long `scipy.optimize.nnls` takes for five equations: the quickest of many, in microseconds."""

import timeit

import numpy as np
from scipy.optimize import nnls

made = np.random.default_rng(1)
matrix, vector = made.random((5, 3)), made.random(5)
print("time:", 1e6 * min(timeit.repeat(lambda: nnls(matrix, vector), number=20, repeat=50)) / 20)
