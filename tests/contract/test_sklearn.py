"""scikit-learn's own checks."""

from estimators import ESTIMATORS, SKLEARN_CHECKED
from sklearn.utils.estimator_checks import parametrize_with_checks


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
    [ESTIMATORS[name] for name in SKLEARN_CHECKED],
    expected_failed_checks=expected_failed_checks,
)
def test_sklearn(estimator, check):
    check(estimator)
