"""The drafts that are kept are few."""

import pytest

from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.ui.draft_store import MOST_DRAFTS, DraftStore


def test_the_draft_that_was_not_used_for_longest_is_forgotten() -> None:
    store = DraftStore()
    ids = [store.add() for _ in range(MOST_DRAFTS)]
    store.get(ids[0])
    store.add()
    assert store.get(ids[0])
    with pytest.raises(ApiError, match="not kept any more"):
        store.get(ids[1])


def test_a_draft_is_found_by_an_id_that_cannot_be_guessed() -> None:
    store = DraftStore()
    first, second = store.add(), store.add()
    assert len(first) >= 16
    assert store.get(first) is not store.get(second)
    store.remove(first)
    with pytest.raises(ApiError):
        store.get(first)
