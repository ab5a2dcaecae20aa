"""What to do where a checkpoint cannot be used."""

# The end of an error message about a damaged checkpoint.
RESTORE = (
    "restore the checkpoint and the table from copies of the same time, or remove the state folder and rebuild it "
    "(glassflow-dagster run FILE --rebuild-state), or continue without it (--accept-loss), or empty the table and "
    "read the topic again (--start-over)"
)

# What to do where an object store cannot serve.
COPY_FIRST = (
    "stop the pipeline, copy its state to a local folder (glassflow-dagster state copy FROM TO), do this there, and "
    "copy it back"
)
