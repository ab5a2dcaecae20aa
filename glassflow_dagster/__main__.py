"""`python -m glassflow_dagster` is the same as `glassflow-dagster`."""

from glassflow_dagster.cli import main

main()
