"""Conformal intervals."""

import numpy as np
import pytest

from mcdensity import MCD
from mcdensity.simulators import get_simulator


def sample(n=200, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + noise * rng.normal(size=n)


def test_conformal_intervals_hold_what_they_promise():
    """Of many small calibrations of a model that is far too sure: the mean coverage is right."""
    simulator = get_simulator("EconDensity")
    X, y = simulator.sample(200, random_state=0)
    model = MCD("quadratic", random_state=0).fit(X, 0.3 * (y - y.mean()) + y.mean())
    X, y = simulator.sample(3000, random_state=1)
    plain = model.predict_interval(X, 0.8)
    assert np.mean((y >= plain[:, 0]) & (y <= plain[:, 1])) < 0.7
    d = model.predict_distribution(X)
    level, rng = np.minimum(d.cdf(y), d.sf(y)), np.random.default_rng(0)
    held = []
    for _ in range(300):
        order = rng.permutation(3000)
        calibration, test = order[:60], order[60:]
        model.conformal_levels_ = np.sort(level[calibration])
        threshold = model.conformal_levels_[int(61 * 0.2 + 1e-9) - 1]
        held.append(np.mean(level[test] >= threshold))
    # Between 0.8 and 0.8 + 1/61.
    assert 0.795 < np.mean(held) < 0.825
    model.conformalize(X[:60], y[:60])
    interval = model.predict_interval(X[60:], 0.8, conformal=True)
    inside = np.mean((y[60:] >= interval[:, 0]) & (y[60:] <= interval[:, 1]))
    threshold = model.conformal_levels_[int(61 * 0.2 + 1e-9) - 1]
    assert inside == pytest.approx(np.mean(level[60:] >= threshold), abs=0.002)


def test_conformal_mistakes():
    X, y = sample(100)
    model = MCD("quadratic", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"needs conformalize\(X, y\) on held-out rows"):
        model.predict_interval(X, conformal=True)
    with pytest.raises(ValueError, match="y must have one value per row of X"):
        model.conformalize(X, y[:3])
    model.conformalize(X[:8], y[:8])
    with pytest.raises(ValueError, match=r"coverage=0\.9 needs at least 9 rows .* got 8"):
        model.predict_interval(X, 0.9, conformal=True)
    assert np.isfinite(model.predict_interval(X, 0.8, conformal=True)).all()
    # What was learned for one fit does not stay for the next.
    model.fit(X, y)
    with pytest.raises(ValueError, match="needs conformalize"):
        model.predict_interval(X, conformal=True)
