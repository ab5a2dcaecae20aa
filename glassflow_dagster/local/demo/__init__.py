"""The demo: sends known events, runs the pipelines, and compares the tables with independently computed results."""
