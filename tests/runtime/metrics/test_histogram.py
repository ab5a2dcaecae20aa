"""Histograms: their buckets, sums, differences and quantiles."""

import numpy as np
import pytest

from glassflow_dagster.runtime.metrics.histogram import Histogram
from glassflow_dagster.runtime.metrics.measures import Measures


def histogram(*values: float) -> Histogram:
    found = Histogram(bounds=(1, 10, 100))
    for value in values:
        found.observe(value)
    return found


def test_a_bound_belongs_to_its_bucket() -> None:
    assert histogram(0, 1, 1.5, 10, 11, 1000).counts == [2, 2, 1, 1]


def test_an_array_is_counted_as_its_values_are() -> None:
    values = np.random.default_rng(7).uniform(0, 200, 1000)
    found = Histogram(bounds=(1, 10, 100))
    found.observe_all(values)
    one_by_one = histogram(*values)
    assert found.counts == one_by_one.counts
    assert found.total == pytest.approx(one_by_one.total)


def test_no_values_change_nothing() -> None:
    found = histogram(5)
    found.observe_all(np.array([]))
    assert found == histogram(5)


def test_sum_and_difference() -> None:
    assert histogram(1, 20) + histogram(300) == histogram(1, 20, 300)
    assert histogram(1, 20, 300) - histogram(1) == histogram(20, 300)


@pytest.mark.parametrize(("share", "expected"), [(0.25, 1.0), (0.5, 5.5), (0.9, 64.0), (1.0, 100.0)])
def test_a_quantile_is_interpolated_within_its_bucket(share: float, expected: float) -> None:
    found = Histogram(bounds=(1, 10, 100), counts=[5, 10, 5, 0])
    assert found.quantile(share) == pytest.approx(expected)


def test_of_the_last_bucket_only_its_lower_bound_is_known() -> None:
    assert histogram(1000).quantile(0.5) == 100


def test_nothing_has_no_quantile() -> None:
    assert histogram().quantile(0.5) is None


def test_measures_of_two_partitions_add_up_and_survive_json() -> None:
    left, right = Measures(), Measures()
    left.add_insert("d.t", 0.01, 1000, 64_000)
    left.add_retry("d.t", 252)
    right.add_insert("d.t", 0.02, 10, 640)
    right.add_retry("d.t", 252)
    right.add_retry("d.dead", None)
    both = Measures.model_validate_json((left + right).model_dump_json())
    assert both.inserts["d.t"].rows.count == 2
    assert both.inserts["d.t"].bytes.total == 64_640
    assert both.inserts["d.t"].retries == {"252": 2}
    assert both.inserts["d.dead"].retries == {"none": 1}
