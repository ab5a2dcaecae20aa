import pytest

from glassflow_dagster.definition.model.table_names import split_table_name, write_table_name


@pytest.mark.parametrize(
    ("text", "database", "table"),
    [
        ("orders", "own", "orders"),
        ("shop.orders", "shop", "orders"),
        ("shop.orders.v1", "shop", "orders.v1"),
        ("`shop.orders.v1`", "own", "shop.orders.v1"),
        ("default.`shop.orders.v1`", "default", "shop.orders.v1"),
        ("`my.shop`.`orders`", "my.shop", "orders"),
        ("`my.shop`.orders.v1", "my.shop", "orders.v1"),
        ("`it``s \\`a\\\\`", "own", "it`s `a\\"),
        ("`half", "own", "`half"),
        ("a`b.c`d", "a`b", "c`d"),
        (".orders", "", "orders"),
        ("shop.", "shop", ""),
    ],
)
def test_the_first_dot_separates_database_and_table_and_backquotes_keep_dots(
    text: str, database: str, table: str
) -> None:
    assert split_table_name(text, "own") == (database, table)


@pytest.mark.parametrize("table", ["orders", "shop.orders.v1", "`quoted`", "a`b.c\\", "it``s."])
def test_a_written_name_is_read_as_the_table_of_the_connections_database(table: str) -> None:
    assert split_table_name(write_table_name(table), "own") == ("own", table)
