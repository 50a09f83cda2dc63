"""Data and small settings for the tests of the compared methods."""

import numpy as np

QUICK = {"steps": 60, "width": 8, "members": 2, "random_state": 0}


def bent(n, seed=0, p=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    return X, np.sin(3 * X[:, 0]) + (0.1 + 0.2 * (X[:, 0] > 0)) * rng.normal(size=n)
