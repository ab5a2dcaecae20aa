"""The demonstration: sends known events, runs both pipelines, and compares with counts of its own."""
