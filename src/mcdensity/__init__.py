"""The whole distribution of y given x, from any classifier.

The public names are loaded on first use, so that ``import mcdensity`` stays light: it loads
neither torch nor scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from mcdensity.contrast import ContrastSet, build_contrast, stack_targets
    from mcdensity.distribution import ConditionalDistribution
    from mcdensity.estimator import ConditionalEstimator
    from mcdensity.explorer import explore
    from mcdensity.mcd import MCD
    from mcdensity.persistence import load, save
    from mcdensity.pipelines import as_estimator
    from mcdensity.streaming.fitting import fit_files
    from mcdensity.streaming.monitoring import evaluate_files
    from mcdensity.streaming.predicting import predict_dask, predict_files
    from mcdensity.tables import TableEstimator

_HOME = {
    "MCD": "mcd",
    "ConditionalDistribution": "distribution",
    "ConditionalEstimator": "estimator",
    "ContrastSet": "contrast",
    "TableEstimator": "tables",
    "as_estimator": "pipelines",
    "build_contrast": "contrast",
    "evaluate_files": "streaming.monitoring",
    "explore": "explorer",
    "fit_files": "streaming.fitting",
    "load": "persistence",
    "predict_dask": "streaming.predicting",
    "predict_files": "streaming.predicting",
    "save": "persistence",
    "stack_targets": "contrast",
}

_MODULES = {
    "baselines", "datasets", "discriminators", "explorer", "inspection", "marginals", "metrics",
    "persistence", "pipelines", "plotting", "report", "shift", "simulators", "tables",
}  # fmt: skip

__all__ = [
    "MCD",
    "ConditionalDistribution",
    "ConditionalEstimator",
    "ContrastSet",
    "TableEstimator",
    "as_estimator",
    "build_contrast",
    "evaluate_files",
    "explore",
    "fit_files",
    "load",
    "predict_dask",
    "predict_files",
    "save",
    "stack_targets",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"mcdensity.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"mcdensity.{name}")
    else:
        raise AttributeError(f"module 'mcdensity' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
