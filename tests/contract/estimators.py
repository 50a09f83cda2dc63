"""Every estimator of the package, listed once: the contract suite runs each through all checks."""

import numpy as np
import pandas
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

from mcdensity import MCD, TableEstimator
from mcdensity._delegate import DelegatingEstimator
from mcdensity.baselines import get_estimator, list_estimators
from mcdensity.experts import list_experts, portfolio_names
from mcdensity.persistence import storable


@storable
class OnArrays(DelegatingEstimator):
    """A `TableEstimator` for arrays, whose columns get names."""

    refuses_constants = True

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y, sample_weight=None):
        self._adopt(clone(self.estimator).fit(self._prepare(X), y, sample_weight=sample_weight))
        return self

    def _prepare(self, X):
        if hasattr(X, "columns"):
            return X
        return pandas.DataFrame(X, columns=[f"x{i}" for i in range(np.shape(X)[1])])

    @property
    def feature_names_in_(self):
        return self.estimator_.feature_names_in_

    @property
    def n_features_in_(self):
        return self.estimator_.n_features_in_


# Small settings where a default would make the suite slow.
QUICK = {
    "forest": {"n_trees": 20},
    "random-forest": {"n_estimators": 10},
    "extra-trees": {"n_estimators": 10},
    "catboost": {"n_estimators": 30, "thread_count": 1},
    "lightgbm": {"n_estimators": 30, "n_jobs": 1},
    "xgboost": {"n_estimators": 30, "n_jobs": 1},
    "hist-gradient-boosting": {"max_iter": 30},
}
QUICK |= {
    name: {"steps": 40, "width": 16}
    for name in ("mlp", "mlp-plain", "resnet", "glu", "snn", "two-tower", "mixture", "flow")
}
QUICK["stacked"] = {"n_trees": 10, "network_params": QUICK["mixture"]}
# The default, with all its experts, each a small one.
QUICK["auto"] = {"portfolio": {name: QUICK.get(name, {}) for name in portfolio_names()}}

ESTIMATORS = {
    f"MCD-{name}": MCD(discriminator=name, discriminator_params=QUICK.get(name), random_state=0)
    for name in list_experts()
}
ESTIMATORS |= {
    "MCD-iid": MCD(discriminator="quadratic", construction="iid", ratio=0.5, random_state=0),
    "MCD-learner": MCD(discriminator=LogisticRegression(), random_state=0),
    "MCD-regressor": MCD(discriminator=Ridge(), random_state=0),
    "MCD-auto-ratio": MCD(discriminator="quadratic", ratio="auto", random_state=0),
    "TableEstimator": OnArrays(TableEstimator(MCD(discriminator="quadratic", random_state=0))),
}


def baseline(name, **parameters):
    estimator = get_estimator(name, **parameters)
    seeded = "random_state" in estimator.get_params()
    return estimator.set_params(random_state=0) if seeded else estimator


QUICK_BASELINES = {
    **{name: {"steps": 40, "width": 8} for name in ("deepcde", "kmn", "mdn", "nf")},
    "rfcde": {"n_trees": 10},
    "f-rfcde": {"n_trees": 10, "flambda": 2},
}
ESTIMATORS |= {name: baseline(name, **QUICK_BASELINES.get(name, {})) for name in list_estimators()}
ESTIMATORS["nf-radial"] = baseline("nf", flow="radial", **QUICK_BASELINES["nf"])
# As a user gets them, in `make test-all`.
FULL = {f"{name}-full": baseline(name) for name in QUICK_BASELINES}
FULL |= {f"MCD-{name}-full": MCD(discriminator=name, random_state=0) for name in QUICK}

# The suite of scikit-learn fits each estimator some hundred times: these stand for all.
SKLEARN_CHECKED = [
    "MCD-quadratic",
    "MCD-hist-gradient-boosting",
    "MCD-learner",
    "MCD-mlp",
    "deepcde",
    "flexcode-nn",
    "kmn",
    "lscde",
    "marginal",
    "mdn",
    "nf",
    "nnkcde",
    "rfcde",
]
