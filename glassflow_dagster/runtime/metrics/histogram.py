"""A histogram that travels: from Spark's workers to the driver, into the heartbeat's file, and to Prometheus.

This module runs inside Spark's Python workers, so it does not import prometheus_client; and whoever reads a heartbeat
loads it, so it imports numpy only where an array is counted.
"""

from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, model_validator

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Histogram(BaseModel):
    """Counts of values by bucket, as Prometheus has them; it can be added to another one of the same bounds.

    bounds: the buckets' inclusive upper bounds, ascending; a last bucket without a bound has the rest.
    counts: the values in each bucket, and not in the ones below it.
    total: the sum of the values.
    """

    bounds: tuple[float, ...]
    counts: list[int] = []
    total: float = 0.0

    @model_validator(mode="after")
    def _fill_counts(self) -> Self:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)
        return self

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[sum(bound < value for bound in self.bounds)] += 1
        self.total += value

    def observe_all(self, values: "NDArray[Any]") -> None:
        """Count an array of values."""
        import numpy as np  # noqa: PLC0415 - see above

        buckets = np.searchsorted(np.asarray(self.bounds), values, side="left")
        found = np.bincount(buckets, minlength=len(self.counts))
        self.counts = [count + int(new) for count, new in zip(self.counts, found, strict=True)]
        self.total += float(values.sum())

    def quantile(self, share: float) -> float | None:
        """Return the value below which a share of the values lies, by linear interpolation; None without a value.

        It is as exact as the buckets are narrow. Of the last bucket only the lower bound is known, which is returned.
        The method is that of PromQL's `histogram_quantile`.
        """
        rank, below = share * self.count, 0
        for index, count in enumerate(self.counts):
            if count and below + count >= rank:
                lower = self.bounds[index - 1] if index else 0.0
                upper = self.bounds[index] if index < len(self.bounds) else lower
                return lower + (upper - lower) * (rank - below) / count
            below += count
        return None

    def __add__(self, other: "Histogram") -> "Histogram":
        """Return the histogram of both's values."""
        return self._combine(other, 1)

    def __sub__(self, earlier: "Histogram") -> "Histogram":
        """Return the histogram of the values that were added since `earlier`, a former state of this one."""
        return self._combine(earlier, -1)

    def _combine(self, other: "Histogram", sign: int) -> "Histogram":
        counts = [a + sign * b for a, b in zip(self.counts, other.counts, strict=True)]
        return Histogram(bounds=self.bounds, counts=counts, total=self.total + sign * other.total)
