"""Experts: whatever knows the law of y given x, as a ratio to the marginal or as a density."""

from mcdensity.experts.base import (
    Conditioned,
    ConditionedDensity,
    ConditionedRatio,
    DensityExpert,
    Expert,
    FitReport,
    RatioExpert,
)
from mcdensity.experts.registry import (
    get_expert,
    list_experts,
    portfolio_names,
    register,
    unregister,
)

__all__ = [
    "Conditioned",
    "ConditionedDensity",
    "ConditionedRatio",
    "DensityExpert",
    "Expert",
    "FitReport",
    "RatioExpert",
    "get_expert",
    "list_experts",
    "portfolio_names",
    "register",
    "unregister",
]
