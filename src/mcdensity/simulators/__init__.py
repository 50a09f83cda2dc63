"""Density models with a known answer: the nine of the paper, and two toy sets."""

from __future__ import annotations

from typing import Any

from mcdensity.simulators.arma_jump import ARMAJump
from mcdensity.simulators.asymmetric_linear import AsymmetricLinear
from mcdensity.simulators.base import Oracle, Simulator
from mcdensity.simulators.basic_linear import BasicLinear
from mcdensity.simulators.econ_density import EconDensity
from mcdensity.simulators.gaussian_mixture import GaussianMixture
from mcdensity.simulators.jump_diffusion import JumpDiffusion
from mcdensity.simulators.linear_gauss import LinearGauss
from mcdensity.simulators.linear_student_t import LinearStudentT
from mcdensity.simulators.skew_normal import SkewNormal
from mcdensity.simulators.toys import InverseSinusoid, Ring

__all__ = ["Oracle", "Simulator", "get_simulator", "list_simulators"]

_REGISTRY: dict[str, type[Simulator]] = {
    simulator.__name__: simulator
    for simulator in (
        ARMAJump,
        AsymmetricLinear,
        BasicLinear,
        EconDensity,
        GaussianMixture,
        JumpDiffusion,
        LinearGauss,
        LinearStudentT,
        SkewNormal,
        InverseSinusoid,
        Ring,
    )
}


def list_simulators() -> list[str]:
    """Return the names that `get_simulator` understands: the paper's nine, then the toy sets.

    Examples
    --------
    >>> from mcdensity.simulators import list_simulators
    >>> "EconDensity" in list_simulators()
    True
    """
    return list(_REGISTRY)


def get_simulator(name: str, **parameters: Any) -> Simulator:
    """Return a simulator by name.

    Examples
    --------
    >>> from mcdensity.simulators import get_simulator
    >>> model = get_simulator("BasicLinear", n_features=3, sigma=1.0)
    >>> X, y = model.sample(100, random_state=0)
    >>> X.shape, y.shape, model.pdf_grid(X[:2], model.marginal_grid(1000)).shape
    ((100, 3), (100,), (2, 1000))
    """
    if name not in _REGISTRY:
        raise ValueError(f"Simulator {name!r} is not known; choose from {list_simulators()}.")
    return _REGISTRY[name](**parameters)
