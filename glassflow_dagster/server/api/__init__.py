"""The HTTP API: GlassFlow's `/api/v1`, and what a page needs besides.

A definition stays a file in the pipelines folder; the API reads and writes these files, and starts and stops drivers by
the functions that the command line and Dagster use. What it keeps besides (earlier versions, secrets, the audit log) is
in the folder `.api` beside them.
"""
