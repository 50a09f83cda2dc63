"""Networks that learn from batches of rows, which need not be in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._known import storable
from mcdensity.data import HeldOut, TrainingData
from mcdensity.experts.base import FitReport
from mcdensity.experts.density.budget import LARGE, usual_batch, usual_rate, usual_steps
from mcdensity.experts.density.network import NetworkDensity

__all__ = ["StreamedDensity"]

Array = NDArray[np.float64]

# From so many rows on so many are in a step, and from so many more on they grow with the rows.
_MANY_ROWS, _BATCH, _LARGE_BATCH_ROWS, _MOST_BATCH = 500_000, 1024, 10_000_000, 4096
# With so many rows networks are wider: see `benchmarks/large_data.txt`.
_WIDE_ROWS, _WIDTHS, _DEPTH = 2_000_000, (128, 256), 3
# Noise of the smallest level of networks in memory, and how it falls.
_NOISE = 0.02


@storable
class StreamedDensity(NetworkDensity):
    """A `NetworkDensity` of one member that learns from batches; it predicts like any other."""

    @classmethod
    def for_rows(cls, tower: str, rows: int, effort: float) -> StreamedDensity:
        """Return a network whose size and training suit a number of rows."""
        batch = usual_batch(tower, rows, large=True)
        if rows >= _MANY_ROWS:
            batch = int(np.clip(_BATCH * rows / _LARGE_BATCH_ROWS, _BATCH, _MOST_BATCH))
        # All rows are seen at least once.
        steps = max(usual_steps(tower, rows, effort), -(-rows // batch))
        return cls(
            tower,
            members=1,
            width=_WIDTHS[rows >= _WIDE_ROWS],
            depth=_DEPTH,
            dropout=0.0,
            steps=steps,
            batch_size=batch,
            learning_rate=min(usual_rate(max(rows, LARGE)), usual_rate(rows)),
            noise=_NOISE * (max(rows, 100) / 100) ** (-1 / 6),
        )

    def fit_batches(
        self, data: TrainingData, batches: Iterator[tuple[Array, Array, Array]], start: Any = None
    ) -> FitReport:
        """Learn.

        Parameters
        ----------
        data : TrainingData
            Rows that are held out; they choose the best weights, and are reported on.
        batches : iterator
            Standardised rows, inner targets and weights: arrays (b, p), (b,) and (b,), without end.
        start : NetworkDensity, optional
            A network of the same shape to go on from.
        """
        import torch

        from mcdensity.networks.random import seeded

        self._check()
        n = len(data)
        held_out = HeldOut(np.ones((1, n), dtype=bool), np.arange(n))
        levels = np.array([float(self.noise)])
        low, high = data.X.min(axis=0), data.X.max(axis=0)
        self._x_limits = 2 * low - high, 2 * high - low
        with seeded(int(data.random_state.integers(2**31))), torch.enable_grad():
            training = self._prepare(data, held_out, 1, levels)
            if start is not None and _same_shape(start.module_, training.module):
                training.module.load_state_dict(start.module_.state_dict())
                for parameter in training.module.parameters():
                    parameter.requires_grad_(True)
            training.batches = batches
            self.n_steps_ = training.run(
                steps=int(self.steps or 1),
                learning_rate=float(self.learning_rate or usual_rate(n)),
                weight_decay=self.weight_decay,
                report=data.report,
                inner=16,
                seconds=data.seconds_left(),
                ends_early=False,
            )
        report = self._weigh(training, data, held_out, 1, levels)
        self.module_ = training.module.cpu().eval()
        assert data.marginal is not None
        self._points = data.marginal.strata(256)
        return report


def _same_shape(first: Any, second: Any) -> bool:
    shapes = [{n: t.shape for n, t in m.state_dict().items()} for m in (first, second)]
    return shapes[0] == shapes[1]
