"""Discriminators made of trees."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.utils.validation import has_fit_parameter

from mcdensity._known import storable
from mcdensity._validation import require
from mcdensity.contrast import ContrastSet
from mcdensity.data import OutOfTimeError, TrainingData
from mcdensity.experts.ratio.learner import LearnerDiscriminator, fit_learner, unfitted_copy
from mcdensity.experts.registry import register

__all__ = [
    "BoostingDiscriminator",
    "catboost",
    "extra_trees",
    "hist_gradient_boosting",
    "lightgbm",
    "random_forest",
    "xgboost",
]

# A fifth is held out, as everywhere in the package; twenty rounds without gain end the boosting.
_VALIDATION_SHARE = 0.2
_PATIENCE = 20
# With fewer observations a fifth of them, four or fewer, says nothing about when to stop.
_LEAST_OBSERVATIONS = 20
# With a time budget: rounds that measure the pace, and the least that are worth boosting.
_PILOT_ROUNDS, _LEAST_ROUNDS = 3, 20


@storable
class BoostingDiscriminator(LearnerDiscriminator):
    """Gradient boosting whose number of rounds is chosen on held-out *observations*.

    A fifth of the observations is set aside, both parts are paired anew, and rounds are added
    while the validation score improves. Then the learner is fitted to all pairs with that number of
    rounds.

    Parameters
    ----------
    learner : classifier
        Of scikit-learn (histogram based), xgboost, lightgbm or catboost.

    Attributes
    ----------
    learner_ : classifier
    n_rounds_ : int
        The chosen number of rounds.
    """

    def _fit_learner(self, learner: Any, data: TrainingData) -> Any:
        contrast = data.contrast()
        family = type(learner).__module__.split(".")[0]
        rounds = {"sklearn": "max_iter", "catboost": "iterations"}.get(family, "n_estimators")
        if family == "sklearn":
            learner.set_params(early_stopping=False)
        if data.deadline is not None:
            affordable = _affordable_rounds(learner, rounds, data)
            learner.set_params(**{rounds: min(affordable, learner.get_params()[rounds])})
        if contrast.n_observations >= _LEAST_OBSERVATIONS:
            train, test = contrast.split(_VALIDATION_SHARE, data.random_state)
            self.n_rounds_ = _rounds_until_no_gain(unfitted_copy(learner), family, train, test)
            learner.set_params(**{rounds: self.n_rounds_})
        else:
            self.n_rounds_ = learner.get_params()[rounds]
        return fit_learner(learner, contrast)


def _affordable_rounds(learner: Any, rounds: str, data: TrainingData) -> int:
    """Return how many rounds fit into the time that is left, timed on a few of them."""
    start = time.monotonic()
    fit_learner(unfitted_copy(learner).set_params(**{rounds: _PILOT_ROUNDS}), data.contrast())
    pace = (time.monotonic() - start) / _PILOT_ROUNDS
    # All rounds are boosted up to twice: to choose their number, and for the final fit.
    affordable = int(data.seconds_left() / (2 * pace))
    if affordable < _LEAST_ROUNDS:
        raise OutOfTimeError("Too little time is left for boosting; allow more time_budget.")
    return affordable


def _rounds_until_no_gain(learner: Any, family: str, train: ContrastSet, test: ContrastSet) -> int:
    """Fit to one part of the observations; count rounds until the other part's score stalls."""
    pairs, label, weight = test.materialize(), test.label.astype(np.int64), test.weight
    if family == "sklearn":
        learner.set_params(early_stopping=True, n_iter_no_change=_PATIENCE)
        fit_learner(learner, train, X_val=pairs, y_val=label, sample_weight_val=weight)
        # The scores start with that of no round at all.
        return max(1, int(np.argmax(learner.validation_score_)))
    options: dict[str, Any] = {}
    if family == "xgboost":
        learner.set_params(early_stopping_rounds=_PATIENCE)
        if weight is not None:
            options["sample_weight_eval_set"] = [weight]
        fit_learner(learner, train, eval_set=[(pairs, label)], verbose=False, **options)
        return int(learner.best_iteration) + 1
    if family == "lightgbm":
        stop = require("lightgbm", "boosting").early_stopping(_PATIENCE, verbose=False)
        if weight is not None:
            options["eval_sample_weight"] = [weight]
        if has_fit_parameter(learner, "eval_X"):  # newer versions have two arguments for it
            options |= {"eval_X": (pairs,), "eval_y": (label,)}
        else:
            options["eval_set"] = [(pairs, label)]
        fit_learner(learner, train, callbacks=[stop], **options)
        return int(learner.best_iteration_)
    pool = require("catboost", "boosting").Pool(pairs, label, weight=weight)
    fit_learner(learner, train, eval_set=pool, early_stopping_rounds=_PATIENCE)
    return int(learner.get_best_iteration()) + 1


def _refuse_early_stopping(parameters: dict[str, Any]) -> None:
    own = {"early_stopping", "early_stopping_rounds", "n_iter_no_change", "validation_fraction"}
    if own & set(parameters):
        raise TypeError(
            f"{sorted(own & set(parameters))}: the number of rounds is chosen on held-out "
            "observations already; leave this out"
        )


# Not in the default portfolio: beside `forest` it gained nothing, and predicting takes long.
@register("hist-gradient-boosting")
def hist_gradient_boosting(**parameters: Any) -> BoostingDiscriminator:
    """Histogram-based gradient boosting of scikit-learn; takes missing values."""
    _refuse_early_stopping(parameters)
    defaults = {"max_iter": 500, "min_samples_leaf": 50, "max_leaf_nodes": 8}
    return BoostingDiscriminator(HistGradientBoostingClassifier(**{**defaults, **parameters}))


@register("xgboost")
def xgboost(**parameters: Any) -> BoostingDiscriminator:
    """XGBoost; takes missing values."""
    _refuse_early_stopping(parameters)
    defaults = {"n_estimators": 500, "learning_rate": 0.1, "max_depth": 4, "verbosity": 0}
    learner = require("xgboost", "boosting").XGBClassifier
    return BoostingDiscriminator(learner(**{**defaults, **parameters}))


@register("lightgbm")
def lightgbm(**parameters: Any) -> BoostingDiscriminator:
    """LightGBM; takes missing values."""
    _refuse_early_stopping(parameters)
    defaults = {"n_estimators": 500, "learning_rate": 0.1, "num_leaves": 15, "verbosity": -1}
    learner = require("lightgbm", "boosting").LGBMClassifier
    return BoostingDiscriminator(learner(**{**defaults, **parameters}))


@register("catboost")
def catboost(**parameters: Any) -> BoostingDiscriminator:
    """CatBoost; takes missing values."""
    _refuse_early_stopping(parameters)
    for alias in ("n_estimators", "num_boost_round", "num_trees"):
        if alias in parameters:
            parameters["iterations"] = parameters.pop(alias)
    defaults = {
        "iterations": 500,
        "learning_rate": 0.1,
        "depth": 6,
        "verbose": False,
        "allow_writing_files": False,
    }
    learner = require("catboost", "boosting").CatBoostClassifier
    return BoostingDiscriminator(learner(**{**defaults, **parameters}))


@register("random-forest")
def random_forest(**parameters: Any) -> LearnerDiscriminator:
    """Random forest; takes missing values."""
    defaults = {"n_estimators": 100, "min_samples_leaf": 20}
    return LearnerDiscriminator(RandomForestClassifier(**{**defaults, **parameters}))


@register("extra-trees")
def extra_trees(**parameters: Any) -> LearnerDiscriminator:
    """Extremely randomised trees; takes missing values."""
    defaults = {"n_estimators": 100, "min_samples_leaf": 20}
    return LearnerDiscriminator(ExtraTreesClassifier(**{**defaults, **parameters}))
