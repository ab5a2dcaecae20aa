"""The demonstration: sends known events, runs the pipelines, and compares with counts of its own."""
