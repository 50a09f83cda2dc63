"""Every estimator through every check."""

import pytest
from checks import CHECKS_OF_FITTED, CHECKS_OF_FITTING, NEW_ROWS, fitted_once
from estimators import ESTIMATORS as QUICK
from estimators import FULL

pytestmark = pytest.mark.filterwarnings("ignore:ratio=:UserWarning")
ESTIMATORS = QUICK | FULL
# The checks of one estimator share its fit: they belong on one worker.
PARAMS = [
    pytest.param(
        name, marks=[pytest.mark.xdist_group(name), *([pytest.mark.slow] * (name in FULL))]
    )
    for name in ESTIMATORS
]


@pytest.mark.parametrize("check", CHECKS_OF_FITTED, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", PARAMS)
def test_fitted(name, check):
    check(ESTIMATORS[name])


@pytest.mark.parametrize("check", CHECKS_OF_FITTING, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", PARAMS)
def test_fitting(name, check):
    check(ESTIMATORS[name])


@pytest.mark.parametrize("name", PARAMS)
def test_blocks_change_nothing(name, monkeypatch):
    import numpy as np

    import mcdensity.estimator as module

    fitted = fitted_once(ESTIMATORS[name])
    before = fitted.predict_quantiles(NEW_ROWS), fitted.predict_distribution(NEW_ROWS).mean()
    monkeypatch.setattr(module, "_BLOCK", 1)
    after = fitted.predict_quantiles(NEW_ROWS), fitted.predict_distribution(NEW_ROWS).mean()
    np.testing.assert_allclose(before[0], after[0], rtol=1e-10)
    np.testing.assert_allclose(before[1], after[1], rtol=1e-10)
