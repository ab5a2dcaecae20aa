"""The address that executors on other hosts are told."""

import pytest

from glassflow_dagster.runtime.address import address_toward_master

MASTER = "spark://127.0.0.1:7077"


def test_an_address_that_the_user_gives_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    assert address_toward_master(MASTER) == "10.0.0.7"


def test_one_that_only_this_host_reaches_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier session of this process, on this host's own cores, has set it."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.2")
    assert address_toward_master(MASTER) == "127.0.0.1"
