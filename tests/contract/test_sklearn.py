"""scikit-learn's own checks."""

from estimators import ESTIMATORS, SKLEARN_CHECKED
from sklearn.utils.estimator_checks import parametrize_with_checks


def expected_failed_checks(estimator):
    name = type(estimator).__name__
    if name == "LSCDE":
        return {}
    reason = "pairs are drawn at random: a weight and copies agree up to the noise of the draw"
    if name == "MarginalBaseline":
        reason = "the bandwidth goes by the effective number of rows, which copies of a row raise"
    elif name in ("NNKCDE", "FlexCode"):
        reason = "a number of neighbours counts rows: copies of a row are several neighbours"
    elif name != "MCD":
        reason = "folds, bags and batches are drawn at random, of rows"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [ESTIMATORS[name] for name in SKLEARN_CHECKED],
    expected_failed_checks=expected_failed_checks,
)
def test_sklearn(estimator, check):
    check(estimator)
