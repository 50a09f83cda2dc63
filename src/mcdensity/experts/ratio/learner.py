"""Any scikit-learn learner as a ratio expert: logit q(x, y), q the probability of a joint pair."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_regressor
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from mcdensity._known import storable
from mcdensity.contrast import ContrastSet
from mcdensity.data import TrainingData
from mcdensity.experts.base import FitReport, RatioExpert

__all__ = ["LearnerDiscriminator"]

Array = NDArray[np.float64]

# Numbers in the matrix of pairs that a learner evaluates at once: 32 MB, so that memory stays
# bounded; learners use smaller blocks internally.
_BLOCK = 1 << 22


def pair_blocks(X: Array, Y: Array) -> Iterator[tuple[slice, Array]]:
    """Yield blocks of rows with the matrix of their pairs, (rows * m, p + 1)."""
    m, columns = Y.shape[1], X.shape[1] + 1
    size = max(1, _BLOCK // (m * columns))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        block = X[rows]
        pairs = np.empty((len(block), m, columns), dtype=X.dtype)
        pairs[:, :, :-1] = block[:, None, :]
        pairs[:, :, -1] = Y[rows]
        yield rows, pairs.reshape(-1, columns)


@storable
class LearnerDiscriminator(RatioExpert):
    """Any scikit-learn classifier or regressor as a discriminator.

    A classifier gives logit q through `decision_function` where that is known to be a logit, else
    through `predict_proba`. A regressor of the label gives q itself.

    Parameters
    ----------
    learner : estimator
        It is cloned, never changed.

    Attributes
    ----------
    learner_ : estimator
        The fitted learner.
    """

    sees_all_pairs: ClassVar[bool] = True

    def __init__(self, learner: Any) -> None:
        self.learner = learner

    def fit(self, data: TrainingData) -> FitReport:
        """Learn from all pairs of the contrast set."""
        learner, contrast = unfitted_copy(self.learner), data.contrast()
        _seed(learner, data.random_state)
        self.learner_ = self._fit_learner(learner, data)
        self.ratio_ = weighted_ratio(learner, contrast.ratio)
        logit_function(self.learner_)  # raises if there is no way to get a logit
        self.make_table(data)
        return FitReport.empty()

    def _fit_learner(self, learner: Any, data: TrainingData) -> Any:
        _switch_off_early_stopping(learner)
        return fit_learner(learner, data.contrast())

    def logit_rows(self, X: Array, Y: Array) -> Array:
        """Logit of q at (X[i], Y[i, j])."""
        out, logit = np.empty(Y.shape), logit_function(self.learner_)
        for rows, pairs in pair_blocks(X, Y):
            out[rows] = np.reshape(logit(self.learner_, pairs), (-1, Y.shape[1]))
        return out

    def allows_nan(self) -> bool:
        """Whether X may have missing values."""
        module = type(_last(self.learner)).__module__.split(".")[0]
        if module in ("xgboost", "lightgbm", "catboost"):
            return _last(self.learner) is self.learner
        return bool(
            hasattr(self.learner, "__sklearn_tags__")
            and get_tags(self.learner).input_tags.allow_nan
        )

    def takes_weights(self) -> bool:
        """Whether rows may have weights."""
        return _weight_argument(self.learner) is not None

    def describe(self) -> str:
        """Name for messages."""
        return type(self.learner).__name__


def unfitted_copy(learner: Any) -> Any:
    """Clone a learner; those that scikit-learn cannot clone are copied as they are."""
    try:
        return clone(learner)
    except (RuntimeError, TypeError):  # catboost with class weights is one
        return copy.deepcopy(learner)


def fit_learner(learner: Any, contrast: ContrastSet, **options: Any) -> Any:
    """Fit a learner to all pairs; an error says which learner it came from."""
    name = type(learner).__name__
    if contrast.weight is not None:
        argument = _weight_argument(learner)
        if argument is None:
            raise ValueError(
                f"sample_weight was given, but the discriminator {name} cannot be fitted with "
                "weights. Choose one that can."
            )
        options[argument] = contrast.weight
    regressor = is_regressor(learner)
    label = contrast.label.astype(np.float64 if regressor else np.int64)
    try:
        learner.fit(contrast.materialize(), label, **options)
    except Exception as error:
        kind = next((k for k in (ValueError, TypeError) if isinstance(error, k)), RuntimeError)
        raise kind(f"The discriminator {name} could not be fitted: {error}") from error
    return learner


def _weight_argument(learner: Any) -> str | None:
    """Return the name under which `fit` takes weights, also inside pipelines and searches."""
    if hasattr(learner, "steps"):
        name, last = learner.steps[-1]
        inner = _weight_argument(last)
        return None if inner is None else f"{name}__{inner}"
    if has_fit_parameter(learner, "sample_weight"):
        return "sample_weight"
    if hasattr(learner, "cv") and hasattr(learner, "estimator"):
        return _weight_argument(learner.estimator)
    return None


def _last(learner: Any) -> Any:
    """Return the part that predicts: the end of a pipeline, the best of a search."""
    if hasattr(learner, "steps"):
        return _last(learner.steps[-1][1])
    if hasattr(learner, "best_estimator_"):
        return _last(learner.best_estimator_)
    return learner


def _parameters(learner: Any) -> dict[str, Any]:
    return learner.get_params(deep=True) if hasattr(learner, "get_params") else {}


def _seed(learner: Any, rng: np.random.Generator) -> None:
    """Seed every part that draws random numbers and has no seed."""
    names = [
        k
        for k, v in _parameters(learner).items()
        if k.split("__")[-1] == "random_state" and v is None
    ]
    seeds = rng.integers(2**31 - 1, size=len(names))
    if names:
        learner.set_params(**{k: int(s) for k, s in zip(names, seeds, strict=True)})


def _switch_off_early_stopping(learner: Any) -> None:
    """Keep learners from splitting *pairs*: the same row would be on both sides."""
    parameters = _parameters(learner)
    for key, value in parameters.items():
        prefix, name = key[: key.rfind("__") + 2] if "__" in key else "", key.split("__")[-1]
        if name == "early_stopping" and value in (True, "auto"):
            learner.set_params(**{key: False})
        elif value is not None and (
            name == "early_stopping_rounds"
            # GradientBoosting has no such switch: there a number of rounds switches it on.
            or (
                name == "n_iter_no_change"
                and f"{prefix}validation_fraction" in parameters
                and f"{prefix}early_stopping" not in parameters
            )
        ):
            learner.set_params(**{key: None})
        else:
            continue
        if value != "auto":
            warnings.warn(
                f"{type(learner).__name__}({key}={value!r}) would hold out pairs that share "
                "rows with the training pairs; it is switched off.",
                UserWarning,
                stacklevel=5,
            )


def weighted_ratio(learner: Any, ratio: float) -> float:
    """Return the share of joint pairs, including the learner's own class weights."""
    odds = ratio / (1 - ratio)
    for key, value in _parameters(_last(learner)).items():
        if value is None or value is False:
            continue
        if key in ("class_weight", "class_weights"):
            if isinstance(value, str):
                odds = 1.0
            else:
                zero, one = (
                    (value.get(k, 1.0) for k in (0, 1)) if isinstance(value, dict) else value
                )
                odds *= one / zero
        elif key == "scale_pos_weight":
            odds *= value
        elif key == "is_unbalance" or (key == "auto_class_weights" and value == "Balanced"):
            odds = 1.0
        elif key == "auto_class_weights" and value == "SqrtBalanced":
            odds = np.sqrt(odds)
    return float(odds / (1 + odds))


# Classes of scikit-learn whose decision_function is the logit of the probability.
_LOGISTIC = {
    "LogisticRegression",
    "LogisticRegressionCV",
    "HistGradientBoostingClassifier",
    "LinearDiscriminantAnalysis",
    "QuadraticDiscriminantAnalysis",
}


def _is_logistic(learner: Any) -> bool:
    last = _last(learner)
    if not type(last).__module__.startswith("sklearn."):
        return False
    name = type(last).__name__
    return name in _LOGISTIC or (
        name in ("SGDClassifier", "GradientBoostingClassifier") and last.loss == "log_loss"
    )


def logit_function(learner: Any) -> Callable[[Any, Array], Array]:
    """Choose how to get logit q out of a fitted learner."""
    family = type(learner).__module__.split(".")[0]
    if hasattr(learner, "predict_proba"):
        if family == "xgboost":
            return _xgboost_logit
        if family == "lightgbm":
            return _lightgbm_logit
        if family == "catboost":
            return _catboost_logit
        return _decision_logit if _is_logistic(learner) else _probability_logit
    if _is_logistic(learner):
        return _decision_logit
    if is_regressor(learner) or (hasattr(learner, "predict") and not hasattr(learner, "classes_")):
        return _regression_logit
    raise ValueError(
        f"The discriminator {type(learner).__name__} has no predict_proba, and its scores are not "
        "known to be logits of probabilities. Wrap it in "
        "sklearn.calibration.CalibratedClassifierCV, or choose another."
    )


def _decision_logit(learner: Any, pairs: Array) -> Array:
    return learner.decision_function(pairs)


def _xgboost_logit(learner: Any, pairs: Array) -> Array:
    return learner.predict(pairs, output_margin=True)


def _lightgbm_logit(learner: Any, pairs: Array) -> Array:
    # Through the booster: the wrapper would warn that a plain array has no feature names.
    return learner.booster_.predict(pairs, raw_score=True)


def _catboost_logit(learner: Any, pairs: Array) -> Array:
    return learner.predict(pairs, prediction_type="RawFormulaVal")


def _probability_logit(learner: Any, pairs: Array) -> Array:
    probability = np.asarray(learner.predict_proba(pairs), dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.log(probability[:, 1]) - np.log(probability[:, 0])


def _regression_logit(learner: Any, pairs: Array) -> Array:
    q = np.clip(np.asarray(learner.predict(pairs), dtype=np.float64), 0, 1)
    with np.errstate(divide="ignore"):
        return np.log(q) - np.log1p(-q)
