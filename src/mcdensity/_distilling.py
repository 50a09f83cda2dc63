"""`MCD.distill`: a copy of a model in which one small network replaces the experts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mcdensity._calibration import forget
from mcdensity._parallel import in_parallel
from mcdensity._validation import as_generator
from mcdensity.distribution.against import inner_probabilities
from mcdensity.experts.density.stacked import forest_of, neighbours_of
from mcdensity.experts.distilled import Knots, distill, finer, thinned
from mcdensity.target import DiscreteSpace

__all__ = ["Distillable", "network_only"]

Array = NDArray[np.float64]


class Distillable:
    """What makes small copies of a model."""

    def distill(self, X: ArrayLike | None = None, random_state: Any = None) -> Self:
        """Return a copy of this model in which one small network replaces all experts.

        Predictions are many times faster. The network learns from this model alone, which is asked
        about points near rows that it kept from the training data. If it loses more than 0.03
        nats, another learns for longer; if the model has a forest, that one is also given what up
        to 160 of the trees, and the nearest rows if the model asks them, say of a row. These
        predictions take ten times as long as without trees, or more, and files are larger.

        Parameters
        ----------
        X : array-like of shape (m, p), optional
            Further rows of the same distribution; no targets are needed.
        random_state : int, Generator, RandomState or None
            Seed of the network; by default that of the model.

        Returns
        -------
        A model of this kind
            With a further attribute, `distill_loss_`: how much log-likelihood is lost, on average
            over rows that the network has not seen, if this model is right. With few rows and
            many features new rows may lose more.

        Examples
        --------
        >>> from mcdensity import MCD
        >>> from mcdensity.simulators import get_simulator
        >>> X, y = get_simulator("LinearGauss").sample(200, random_state=0)
        >>> model = MCD("quadratic", random_state=0).fit(X, y)
        >>> small = model.distill(random_state=0)
        >>> small.distill_loss_ < 0.03
        True
        """
        return self._distill(X, random_state)

    def _distill(self, X: ArrayLike | None, random_state: Any, thorough: bool = True) -> Self:
        check_is_fitted(self)
        return _distilled_copy(self, X, random_state, thorough)


def network_only(model: Any, random_state: Any = None) -> Any:
    """Return a distilled model whose networks need no trees, for pages and ONNX files.

    Parameters
    ----------
    model : MCD or TableEstimator
        Distilled, or to be distilled.
    random_state : int, Generator, RandomState or None
    """
    if not hasattr(model, "distill_loss_"):
        return model._distill(None, random_state, thorough=False)
    small = copy.copy(model)
    if hasattr(model, "estimator_"):
        small._replace_inner(network_only(model.estimator_))
        return small
    for name in ("links_", "parts_"):
        if hasattr(model, name):
            setattr(small, name, [network_only(part) for part in getattr(model, name)])
    if not hasattr(small, "links_") and not hasattr(small, "parts_"):
        small.discriminator_ = model.discriminator_.alone_ or model.discriminator_
    small.distill_loss_ = _loss(small)
    return small


def _loss(small: Any) -> float:
    """What a distilled model loses, by the losses of its networks."""
    if hasattr(small, "links_"):
        return sum(link.distill_loss_ for link in small.links_)
    if hasattr(small, "parts_"):
        labels, rest = small.parts_
        return labels.distill_loss_ + small._share_of_rest * rest.distill_loss_
    return small.discriminator_.loss_


def _distilled_copy(
    model: Any, X: ArrayLike | None, random_state: Any, thorough: bool = True
) -> Any:
    """Return a copy of a fitted MCD with a small network; see `MCD.distill`."""
    if hasattr(model, "contrast_"):
        raise ValueError("distill is for chains; fit the model with joint='chain'.")
    if hasattr(model, "links_"):
        if X is not None:
            raise ValueError("distill: X is of no use for several targets; call distill() alone.")
        several = copy.copy(model)
        forget(several)
        several.links_ = [
            _distilled_copy(link, None, random_state, thorough) for link in model.links_
        ]
        several.distill_loss_ = _loss(several)
        return several
    if not hasattr(model, "_kept_rows"):
        raise ValueError(
            "This model has kept no rows to distill from: it was saved by an earlier version. Fit "
            "it again."
        )
    more = None if X is None else model._check_predict(X)
    for name, rows in (("the training data", model._kept_rows), ("X", more)):
        if rows is not None and np.isnan(rows).any():
            raise ValueError(
                f"distill: {name} have missing values, which the small network does not take. Use "
                "MCD within TableEstimator, which fills them in."
            )
    rng = as_generator(model.random_state if random_state is None else random_state)
    seed = int(rng.integers(2**31 - 1))
    small = copy.copy(model)
    # Intervals that held-out rows adjusted were adjusted for the other model.
    forget(small)
    if hasattr(model, "parts_"):
        pairs = enumerate(model.parts_)
        small.parts_ = [_distilled_copy(part, more, seed + i, thorough) for i, part in pairs]
    else:
        small.discriminator_ = _student(model, more, seed, thorough)
    small.distill_loss_ = _loss(small)
    for name in ("weights_", "ratio_", "ratio_scores_", "contrast_size_", "construction_"):
        small.__dict__.pop(name, None)
    return small


def _student(model: Any, more: Array | None, seed: int, thorough: bool) -> Any:
    """Train the network on the model's log-ratios."""
    if isinstance(model.target_space_, DiscreteSpace):
        knots = fine = _values(model)
    else:
        u = thinned(model.marginal_.cdf(model._knots))
        knots, fine = (_knots(model, own) for own in (u, finer(u)))
    kept = model._kept_rows.astype(np.float64)
    told_by = forest_of(model.discriminator_), neighbours_of(model.discriminator_)
    return distill(kept, more, knots, fine, seed, *told_by, thorough)


def _values(model: Any) -> Knots:
    """The values of a discrete target."""
    masses = model.marginal_.masses_

    def log_ratio(law: Any) -> Array:
        return np.log(np.maximum(law.masses, 1e-300)) - np.log(masses)

    ask = partial(_asked, model, log_ratio)
    return Knots(np.cumsum(masses) - masses / 2, model.marginal_.scores_, ask, masses)


def _knots(model: Any, u: Array) -> Knots:
    """Points with these probabilities."""
    points = model.marginal_.ppf(inner_probabilities(u))
    log_marginal = model.marginal_.logpdf(points)

    def log_ratio(law: Any) -> Array:
        return law._logpdf(np.broadcast_to(points, (len(law), len(points)))) - log_marginal

    inner = model.target_space_.inner(points, clip=False)
    return Knots(u, inner, partial(_asked, model, log_ratio))


def _asked(model: Any, function: Callable[[Any], Array], rows: Array) -> Array:
    """Return what a function of the laws of rows says, block by block."""
    blocks = model._blocks(len(rows))
    work = in_parallel(lambda b: function(model._distribution(rows[b])), blocks, model._threads())
    return np.concatenate(work)
