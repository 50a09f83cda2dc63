"""The methods of the experiments by the names of the paper, and methods of your own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = [
    "COMPARED",
    "COUNTS",
    "DISCRIMINATORS",
    "MODERN",
    "SEVERAL",
    "check_method",
    "list_methods",
    "make_method",
]

# The compared methods in the order of the paper's tables; "Marginal" is the density of y alone.
COMPARED = {
    "NNKCDE": "nnkcde",
    "NF": "nf",
    "LSCDE": "lscde",
    "MDN": "mdn",
    "KMN": "kmn",
    "DeepCDE": "deepcde",
    "RFCDE": "rfcde",
    "f-RFCDE": "f-rfcde",
    "FlexCode:NN": "flexcode-nn",
    "FlexCode:XGB": "flexcode-xgboost",
    "FlexCode:MLP": "flexcode-mlp",
    "Marginal": "marginal",
}
# Methods of other packages, see `mcdensity.benchmark.modern`.
MODERN = ("NGBoost", "QuantileForest", "Treeffuser", "CatBoostUncertainty")
# Laws of counts, for the protocol `target-kinds` alone.
COUNTS = ("Poisson", "NegativeBinomial", "ZeroInflatedPoisson")
# Laws of several targets, for the protocol `joint-data` alone.
SEVERAL = ("Independent", "LinearGaussian")
DISCRIMINATORS = {
    "MCD": "auto",
    "MCD:MLP": "mlp",
    "MCD:SNN": "snn",
    "MCD:GLU": "glu",
    "MCD:ResNet": "resnet",
    "MCD:MLP:no-DO": "mlp-plain",
    "MCD:CatBoost": "catboost",
    "MCD:ElasticNet": "elastic-net",
    "MCD:XGBoost": "xgboost",
    "MCD:LightGBM": "lightgbm",
    "MCD:RandomForest": "random-forest",
    "MCD:ExtraTrees": "extra-trees",
    "MCD:Quadratic": "quadratic",
    "MCD:HistGB": "hist-gradient-boosting",
    "MCD:TwoTower": "two-tower",
    "MCD:Mixture": "mixture",
    "MCD:Flow": "flow",
}
# The default with more or less work.
EFFORTS = {"MCD:fast": "fast", "MCD:best": "best"}
# Budgets of a run with --quick, which tries the code and not the methods.
_FEW_STEPS = {"steps": 60}
_EXACT = ("two-tower", "mixture", "flow")
_NEURAL = ("mlp", "snn", "glu", "resnet", "mlp-plain", *_EXACT)
_FEW_TREES = {"n_estimators": 30}


def list_methods() -> list[str]:
    """Return the names of all methods."""
    return [*DISCRIMINATORS, *EFFORTS, "MCD:MLP:set", *COMPARED, *MODERN, *COUNTS, *SEVERAL]


def check_method(name: str) -> str:
    """Return the name as the tables write it; an unknown one is an error that lists the known."""
    by_lower = {known.lower(): known for known in list_methods()}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    module, _, attribute = name.partition(":")
    if attribute.isidentifier() and module and module.replace(".", "").isidentifier():
        _load(module, attribute, name)
        return name
    raise _unknown(name)


def _unknown(name: str) -> ValueError:
    return ValueError(
        f"Method {name!r} is not known; choose from {', '.join(list_methods())}, or write "
        "module:function for a function of your own that takes a seed and returns an estimator."
    )


def _load(module: str, attribute: str, name: str) -> Callable[[int], Any]:
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)  # a module beside the caller, as `python -m` would find it
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]:
            raise _unknown(name) from error
        raise ValueError(f"Method {name!r} cannot be loaded: {error!r}.") from error
    finally:
        if added:
            sys.path.remove(folder)


def make_method(name: str, seed: int, quick: bool = False, **mcd: Any) -> Any:
    """Return a new estimator; `mcd` holds more parameters for those that are MCD's."""
    if name in COMPARED:
        from mcdensity.baselines import get_estimator

        estimator: Any = get_estimator(COMPARED[name])
        known = estimator.get_params()
        if "random_state" in known:
            estimator.set_params(random_state=seed)
        if quick:
            estimator.set_params(
                **{k: v for k, v in {**_FEW_STEPS, "n_trees": 20}.items() if k in known}
            )
        return estimator
    if name in MODERN:
        from mcdensity.benchmark import modern

        return modern.MODERN[name](seed, quick)
    if name in COUNTS:
        raise ValueError(f"{name} is a law of counts; only the protocol target-kinds uses it.")
    if name in SEVERAL:
        raise ValueError(f"{name} is for several targets; only the protocol joint-data uses it.")
    if name in EFFORTS:
        return make_method("MCD", seed, quick, effort=EFFORTS[name], **mcd)
    if name in DISCRIMINATORS or name == "MCD:MLP:set":
        from mcdensity import MCD

        # "MCD:MLP:set" trains on the pairs of the contrast set alone, as the paper does.
        discriminator = DISCRIMINATORS.get(name, "mlp")
        params: dict[str, Any] = {"fresh_pairs": False} if name.endswith(":set") else {}
        if quick and discriminator == "auto":
            params["portfolio"] = ("quadratic", "hist-gradient-boosting")
        elif quick and discriminator in _NEURAL:
            params |= _FEW_STEPS
        elif quick and discriminator in ("catboost", "xgboost", "lightgbm"):
            params |= _FEW_TREES
        if discriminator == "catboost":
            params["thread_count"] = 1
        elif discriminator in ("xgboost", "lightgbm"):
            params["n_jobs"] = 1
        if discriminator not in ("auto", *_EXACT):
            mcd = {"marginal": "tailed", **mcd}  # the paper's kernel density, but for its tails
        # Likelihoods of different measures do not compare: all methods have densities on the line,
        # unless a protocol asks for more.
        mcd = {"target": "continuous", "support": (None, None), **mcd}
        return MCD(discriminator, discriminator_params=params or None, random_state=seed, **mcd)
    module, _, attribute = name.partition(":")
    return _load(module, attribute, name)(seed)
