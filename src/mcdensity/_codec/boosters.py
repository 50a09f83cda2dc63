"""Learners of xgboost, lightgbm and catboost as members, in a form that can be checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mcdensity._codec.archive import ModelFileError, expect
from mcdensity._codec.catboost_model import dump_catboost, load_catboost
from mcdensity._codec.kinds import BOOSTING
from mcdensity._codec.lightgbm_model import checked_lightgbm
from mcdensity._codec.structure import check_workers
from mcdensity._codec.xgboost_model import checked_xgboost
from mcdensity._validation import require

__all__ = ["dump_booster", "load_booster"]


def dump_booster(learner: Any, family: str, where: str) -> tuple[str, bytes] | None:
    """Return the suffix and the content of a learner's member; None if it is not fitted."""
    fitted = learner.is_fitted() if family == "catboost" else learner.__sklearn_is_fitted__()
    if not fitted:
        return None
    try:
        if family == "xgboost":
            return "ubj", checked_xgboost(bytes(learner.get_booster().save_raw("ubj")))
        if family == "lightgbm":
            text = learner.booster_.model_to_string(num_iteration=-1)
            return "txt", checked_lightgbm(text.encode()).encode()
        return "json", dump_catboost(learner)
    except (ModelFileError, KeyError, TypeError, ValueError) as error:
        raise TypeError(f"{where} cannot be saved: {error}") from error


def load_booster(value: Any, decode: Callable[[Any], Any], member: Callable[[Any], bytes]) -> Any:
    """Return a learner; its library sees only what was checked and written again."""
    family, _, name = str(value["class"]).partition(":")
    if name not in BOOSTING.get(family, ()):
        raise ModelFileError(f"its content names the learner {value['class']!r}.")
    parameters = expect(decode(value["parameters"]), dict)
    for key, setting in parameters.items():
        check_workers(expect(key, str), setting)
    library = require(family, "boosting")
    learner = getattr(library, name)(**parameters)
    if value["model"] is None:
        return learner
    data = member(value["model"])
    if family == "xgboost":
        learner.load_model(bytearray(checked_xgboost(data)))
    elif family == "catboost":
        load_catboost(learner, data, old=str(value["model"]).endswith(".cbm"))
    else:
        booster = library.Booster(model_str=checked_lightgbm(data))
        learner._Booster = booster
        learner.fitted_ = True
        learner._n_features = learner._n_features_in = booster.num_feature()
        if name == "LGBMClassifier":
            learner._classes, learner._n_classes = np.array([0, 1]), 2
    return learner
