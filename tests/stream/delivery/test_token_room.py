"""Room for the insert tokens of a batch: a task enlarges the table's window before an insert that might need it."""

import pytest

from glassflow_dagster.stores.clickhouse.tables.token_window import TOKENS_KEPT
from glassflow_dagster.stream.delivery.token_room import TokenRoom


@pytest.mark.parametrize(
    ("tasks", "tokens_per_insert"), [(1, 1), (1, 100), (32, 1), (32, 100), (7, 300), (20_000, 100)]
)
def test_half_of_the_window_always_has_room_for_the_tokens_of_all_tasks(tasks: int, tokens_per_insert: int) -> None:
    asked: list[int] = []
    room = TokenRoom(tasks, tokens_per_insert, asked.append)
    window = TOKENS_KEPT
    for inserts in range(1, 2000):
        room.reserve()
        window = max([window, *asked])
        assert inserts * tokens_per_insert * tasks * 2 <= window
    # In few steps, each twice as large; in between the window is only checked.
    assert all(tokens % TOKENS_KEPT == 0 and (tokens // TOKENS_KEPT).bit_count() == 1 for tokens in asked)
    assert asked == sorted(asked)


def test_a_batch_that_fits_into_the_window_does_not_ask_for_it() -> None:
    asked: list[int] = []
    room = TokenRoom(2, 100, asked.append)
    for _ in range(TOKENS_KEPT // 2 // 2 // 100):
        room.reserve()
    assert asked == []
    room.reserve()
    assert asked == [2 * TOKENS_KEPT]


def test_a_window_that_another_task_has_set_to_less_is_found_soon() -> None:
    """Two tasks that enlarge a window at the same time may leave the smaller of two sizes."""
    window = 0

    def keep(tokens: int) -> None:
        nonlocal window
        window = max(window, tokens)

    room = TokenRoom(1, 1, keep)
    for _ in range(2 * TOKENS_KEPT):
        room.reserve()
    window = TOKENS_KEPT
    for _ in range(TOKENS_KEPT // 2):
        room.reserve()
    assert window == 8 * TOKENS_KEPT


def test_the_insert_is_not_sent_where_there_is_no_room() -> None:
    def keep(_: int) -> None:
        raise ValueError("no room")

    room = TokenRoom(1, TOKENS_KEPT, keep)
    with pytest.raises(ValueError, match="no room"):
        room.reserve()
