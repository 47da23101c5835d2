from __future__ import annotations

import numpy as np
from labels import again

rows = np.array([[1, 2], [3, 4], [1, 2]])
assert again(rows).shape == rows.shape, f"shape {again(rows).shape}"
