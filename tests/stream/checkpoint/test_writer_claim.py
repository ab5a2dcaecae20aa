"""Of several drivers that use one checkpoint, the one with the greatest epoch has it: in a folder and in a bucket."""

import random
import re
from dataclasses import replace
from uuid import uuid4

import pytest

from glassflow_dagster.errors import Fenced
from glassflow_dagster.stores.bookkeeping.fencing import CHECK_VALID_SECONDS, Epoch
from glassflow_dagster.stream.checkpoint import writer_claim as module
from glassflow_dagster.stream.checkpoint.storage import Storage
from glassflow_dagster.stream.checkpoint.writer_claim import WriterClaim, claim_checkpoint, last_claimed_epoch


def epoch(number: int, driver: str | None = None) -> Epoch:
    return Epoch("d", "p", str(uuid4()), number, driver or str(uuid4()))


def is_newest(claim: WriterClaim) -> bool:
    try:
        claim.require_newest()
    except Fenced:
        return False
    return True


def test_the_newer_driver_goes_on_and_the_older_one_is_told(storage: Storage) -> None:
    assert last_claimed_epoch(storage) == 0
    older = claim_checkpoint(storage, epoch(9))
    older.require_newest()
    newer = claim_checkpoint(storage, replace(epoch(10), database="e"))
    newer.require_newest()
    assert last_claimed_epoch(storage) == 10
    told = rf"p: another driver uses the checkpoint {re.escape(storage.location)}, on host \S+, writing to database e, "
    with pytest.raises(Fenced, match=told):
        older.require_newest()
    # The older one's claim is removed, so that they do not add up.
    assert storage.names("glassflow/writers") == [newer.name]


def test_a_driver_that_claims_too_late_does_not_start(storage: Storage) -> None:
    newer = claim_checkpoint(storage, epoch(10))
    with pytest.raises(Fenced, match="another driver uses the checkpoint"):
        claim_checkpoint(storage, epoch(9))
    newer.require_newest()


@pytest.mark.parametrize("seed", range(5))
def test_exactly_one_of_several_goes_on_in_whatever_order_they_claim(storage: Storage, seed: int) -> None:
    """Two of them have the same number, as after starts with two ClickHouse servers."""
    epochs = [epoch(number) for number in (3, 4, 5, 5)]
    random.Random(seed).shuffle(epochs)
    claims = []
    for each in epochs:
        try:
            claims.append(claim_checkpoint(storage, each))
        except Fenced:
            continue
    remaining = [claim.epoch for claim in claims if is_newest(claim)]
    assert remaining == [max(epochs, key=lambda each: (each.number, each.driver))]


def test_a_claim_that_was_removed_does_not_count(storage: Storage) -> None:
    claim = claim_checkpoint(storage, epoch(1))
    storage.delete_folder("glassflow/writers")
    with pytest.raises(Fenced, match=r"was removed, so it is not known whether another driver uses the checkpoint"):
        claim.require_newest()


def test_files_of_a_write_in_progress_are_no_claims(storage: Storage) -> None:
    claim = claim_checkpoint(storage, epoch(1))
    storage.replace(f"glassflow/writers/{claim.name.replace('1-', '2-')}.{uuid4()}.new", b"")
    claim.require_newest()
    assert last_claimed_epoch(storage) == 1


def test_a_look_is_valid_for_a_while(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "steady_seconds", lambda: now)
    older = claim_checkpoint(storage, epoch(1))
    claim_checkpoint(storage, epoch(2))
    now += CHECK_VALID_SECONDS / 2
    older.require_newest_cached()
    now += CHECK_VALID_SECONDS / 2
    with pytest.raises(Fenced):
        older.require_newest_cached()
