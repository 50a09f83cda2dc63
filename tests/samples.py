"""Data and small settings for the tests of the compared methods."""

import numpy as np
from scipy import stats

QUICK = {"steps": 60, "width": 8, "members": 2, "random_state": 0}
COVARIANCE = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.3], [0.2, 0.3, 1.0]])
SLOPES = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])


def bent(n, seed=0, p=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    return X, np.sin(3 * X[:, 0]) + (0.1 + 0.2 * (X[:, 0] > 0)) * rng.normal(size=n)


def exact_logpdf(mean, covariance, points):
    pairs = zip(mean, points, strict=True)
    return np.array([stats.multivariate_normal(m, covariance).logpdf(p) for m, p in pairs])
