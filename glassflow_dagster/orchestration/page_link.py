"""The link from a pipeline's assets in Dagster to its page, where the environment says where the page is."""

import os
from typing import Any

import dagster as dg

# `make dev` sets it.
PAGE_URL = "GLASSFLOW_PAGE_URL"


def page_link(pipeline_id: str) -> dict[str, Any]:
    """Return the metadata with the link; empty where no page is known."""
    address = os.environ.get(PAGE_URL, "").rstrip("/")
    return {"glassflow/page": dg.MetadataValue.url(f"{address}/ui/pipelines/{pipeline_id}")} if address else {}
