"""Where a driver serves its metrics: an extension of this project."""

from typing import Annotated

from pydantic import Field

from glassflow_dagster.definition.model.fields import Part, Text


class Metrics(Part):
    """Settings of the driver's metrics."""

    port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="port of the driver's metrics for Prometheus, 0 for a free one, which driver.log names; if "
        "omitted: none",
    )
    host: Text = Field(
        default="127.0.0.1", description="address to listen on; metrics are served without a login or encryption"
    )
