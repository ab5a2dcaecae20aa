"""Deduplication tokens: their texts, and that no two blocks of a table share one."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassflow_dagster.stores.clickhouse.inserts.tokens import Token

BLOCK = Token.of_block("orders", "c0ffee", 7, (0, 3, 1500))
JOINED = Token.of_block("orders", "c0ffee", 7, (0, 3, 1500, 1, 0, -1))


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (BLOCK, "orders/c0ffee/7/0/3/1500"),
        (JOINED, "orders/c0ffee/7/0/3/1500/1/0/-1"),
        (BLOCK.dead_letters(), "orders/c0ffee/7/0/3/1500/dead-letters"),
        (BLOCK.dead_letters_of_server(), "orders/c0ffee/7/0/3/1500/dead-letters/insert"),
        (BLOCK.part(0, 750), "orders/c0ffee/7/0/3/1500/0-750"),
        (BLOCK.split(0, 1000), "orders/c0ffee/7/0/3/1500/split/0-1000"),
        (BLOCK.done(1000), "orders/c0ffee/7/0/3/1500/done/1000"),
        (BLOCK.again("5eed"), "orders/c0ffee/7/0/3/1500/again-5eed"),
        (BLOCK.part(0, 750).again("5eed"), "orders/c0ffee/7/0/3/1500/0-750/again-5eed"),
        (BLOCK.empty(), "orders/c0ffee/7/0/3/1500/empty"),
        (Token.of_ledger_row("orders", "c0ffee", 7), "orders/c0ffee/7/ledger"),
        (Token.of_replay_marks("o.glassflow-replay", "1:2", "c0ffee", 12, 40), "o.glassflow-replay/1:2/c0ffee/12-40"),
    ],
)
def test_the_texts_stay_as_they_are(token: Token, text: str) -> None:
    """A driver repeats a batch that an earlier version began: with another token its rows would be duplicated."""
    assert (token.text, str(token)) == (text, text)


def test_a_repeated_batch_makes_the_same_tokens() -> None:
    assert Token.of_block("orders", "c0ffee", 7, [0, 3, 1500]) == BLOCK
    assert Token.of_block("orders", "c0ffee", 7, [0, 3, 1500]).part(2, 4).again(1) == BLOCK.part(2, 4).again(1)


@pytest.mark.parametrize(
    "other",
    [
        Token.of_block("orders-2", "c0ffee", 7, (0, 3, 1500)),
        Token.of_block("orders", "c0ffee2", 7, (0, 3, 1500)),
        Token.of_block("orders", "c0ffee", 71, (0, 3, 1500)),
        Token.of_block("orders", "c0ffee", 7, (1, 3, 1500)),
        Token.of_block("orders", "c0ffee", 7, (0, 31, 500)),
        Token.of_block("orders", "c0ffee", 7, (0, 3, 1501)),
    ],
    ids=["pipeline", "checkpoint", "batch", "topic", "partition", "offset"],
)
def test_another_pipeline_checkpoint_batch_or_block_makes_another_token(other: Token) -> None:
    assert other != BLOCK
    assert set(target_tokens(other)).isdisjoint(target_tokens(BLOCK))


def test_ledger_rows_and_replay_marks_have_tokens_of_their_own() -> None:
    rows = {Token.of_ledger_row(*named) for named in (("p", "c", 1), ("p", "c", 2), ("p", "d", 1), ("q", "c", 1))}
    named = (("i", "c", 0, 4), ("i", "c", 5, 9), ("i", "d", 0, 4), ("i", "c", 0, 5), ("of another topic", "c", 0, 4))
    marks = {Token.of_replay_marks("t", *at) for at in named}
    assert (len(rows), len(marks)) == (4, 5)


def target_tokens(block: Token, rows: int = 4) -> Iterator[Token]:
    """Return all tokens under which a block of `rows` rows, or parts of it, may be sent to the target table."""
    parts = [block.part(first, until) for first in range(rows) for until in range(first + 1, rows + 1)]
    return (token.again(attempt) for token in (block, *parts) for attempt in range(3))


def dead_letter_tokens(block: Token) -> Iterator[Token]:
    """Return the tokens of a block's dead letters."""
    dead_letters = (block.dead_letters(), block.dead_letters_of_server())
    return (token.again(attempt) for token in dead_letters for attempt in range(3))


def split_tokens(block: Token, rows: int = 4) -> Iterator[Token]:
    """Return the tokens of the split notes of a block with `rows` rows."""
    notes = [block.split(first, until) for first in range(rows) for until in range(first + 1, rows + 1)]
    notes += [block.done(until) for until in range(rows)]
    return (token.again(attempt) for token in notes for attempt in range(3))


@pytest.mark.parametrize("tokens_of", [target_tokens, dead_letter_tokens, split_tokens])
@given(data=st.data())
def test_no_two_blocks_of_a_batch_share_a_token(tokens_of: object, data: st.DataObject) -> None:
    assert callable(tokens_of)
    numbers = data.draw(st.sampled_from([3, 6]))
    positions = data.draw(st.lists(st.tuples(*[st.integers(-1, 20)] * numbers), unique=True, max_size=5))
    tokens = [token for position in positions for token in tokens_of(Token.of_block("p", "c", 1, position))]
    assert len(tokens) == len(set(tokens))
