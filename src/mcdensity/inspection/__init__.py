"""What a model has learned: how its laws depend on the features.

Each function returns a `pandas.DataFrame`, and has a picture that takes it. They ask the model
about rows that are mixed from the given ones, in few large batches. They need pandas, which comes
with the extra ``cli``.
"""

from mcdensity.inspection.contributions import shapley
from mcdensity.inspection.effects import accumulated_local_effects, partial_dependence
from mcdensity.inspection.importance import permutation_importance
from mcdensity.inspection.neighbours import nearest_rows
from mcdensity.inspection.plots import (
    plot_contributions,
    plot_effects,
    plot_importance,
    plot_nearest,
)

__all__ = [
    "accumulated_local_effects",
    "nearest_rows",
    "partial_dependence",
    "permutation_importance",
    "plot_contributions",
    "plot_effects",
    "plot_importance",
    "plot_nearest",
    "shapley",
]
