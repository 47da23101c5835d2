"""How many dimensions the inverse of `np.unique(…, axis=0)` has."""

import numpy as np

print("dimensions:", np.unique(np.array([[1, 2], [3, 4], [1, 2]]), axis=0, return_inverse=True)[1].ndim)
