"""How good a model `tree_method="hist"` makes of the same data: its area under the curve."""

import xgboost as xgb
from sklearn.datasets import make_classification
from sklearn.metrics import roc_auc_score

features, labels = make_classification(
    n_samples=4000, n_informative=10, n_clusters_per_class=4, flip_y=0.02, weights=[0.9], random_state=1
)
train, test = slice(0, 3000), slice(3000, None)
settings = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "grow_policy": "lossguide",
    "max_leaves": 64,
    "max_depth": 0,
    "min_child_weight": 1,
    "seed": 1,
    "nthread": 1,
}
model = xgb.train(settings, xgb.DMatrix(features[train], labels[train]), 30)
print("auc:", roc_auc_score(labels[test], model.predict(xgb.DMatrix(features[test]))))
