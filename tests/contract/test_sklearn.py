"""scikit-learn's own checks."""

import importlib.util
from pathlib import Path

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

spec = importlib.util.spec_from_file_location(
    "contract_estimators", Path(__file__).with_name("estimators.py")
)
estimators = importlib.util.module_from_spec(spec)
spec.loader.exec_module(estimators)


def expected_failed_checks(estimator):
    if type(estimator).__name__ == "MarginalBaseline":
        return {
            "check_sample_weight_equivalence_on_dense_data": (
                "the bandwidth goes by the effective number of rows, which copies of a row raise"
            ),
        }
    return {
        "check_sample_weight_equivalence_on_dense_data": (
            "pairs are drawn at random: a weight and copies agree up to the noise of the draw"
        ),
    }


@parametrize_with_checks(
    [estimators.ESTIMATORS[name] for name in estimators.SKLEARN_CHECKED],
    expected_failed_checks=expected_failed_checks,
)
def test_sklearn(estimator, check):
    check(estimator)
