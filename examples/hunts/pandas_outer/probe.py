"""Whether an outer merge with `sort=False` keeps the rows in the order in which they came."""

import pandas as pd

left, right = pd.DataFrame({"key": ["b", "a"], "left": [1, 2]}), pd.DataFrame({"key": ["c", "a"], "right": [3, 4]})
keys = "".join(left.merge(right, on="key", how="outer", sort=False)["key"])
print("in order:", int(keys == "bac"), "# keys", keys)
