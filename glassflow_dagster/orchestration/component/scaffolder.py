"""Scaffolds a component: `dg scaffold defs glassflow_dagster.PipelineFolder PATH [--topic TOPIC ...]`.

With a topic, it reads some of its messages and writes a definition for them beside `defs.yaml`, as `infer` does.
"""

import click
import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from pydantic import BaseModel, Field

from glassflow_dagster.errors import GlassflowError

_MESSAGES = 1000
_SECONDS = 30.0


class ScaffoldParameters(BaseModel):
    """The options of `dg scaffold defs glassflow_dagster.PipelineFolder`."""

    topic: str | None = Field(
        default=None, description="a topic: a definition is proposed from its messages and written beside defs.yaml"
    )
    brokers: str | None = Field(
        default=None,
        description="brokers, HOST:PORT with commas; if omitted: GLASSFLOW_KAFKA_BROKERS, else the embedded stack",
    )
    clickhouse_url: str | None = Field(
        default=None,
        description="http://user@host:port/database for the definition; if omitted: GLASSFLOW_CLICKHOUSE_URL, else the "
        "embedded stack",
    )
    pipeline_id: str | None = Field(default=None, description="pipeline_id; if omitted: derived from the topic")


class PipelineFolderScaffolder(dg.Scaffolder[ScaffoldParameters]):
    """Writes `defs.yaml`, and with a topic a definition for it."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParameters]:
        """Return the model of the options."""
        return ScaffoldParameters

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParameters]) -> None:
        """Write the files; raises `DagsterInvalidInvocationError` where the topic cannot be read."""
        if request.params.topic:
            self._write_definition(request, request.params.topic)
        scaffold_component(request, {"folder": "."})

    def _write_definition(self, request: dg.ScaffoldRequest[ScaffoldParameters], topic: str) -> None:
        """Write the definition that is proposed for a topic beside `defs.yaml`."""
        # Imported here: loading a component needs none of it.
        from glassflow_dagster.inference.servers import Servers  # noqa: PLC0415
        from glassflow_dagster.inference.topic import propose_for_topic  # noqa: PLC0415

        params = request.params
        servers = Servers(params.brokers, None, params.clickhouse_url)
        try:
            proposal = propose_for_topic(topic, servers, params.pipeline_id, _MESSAGES, _SECONDS, click.echo)
        except GlassflowError as error:
            raise dg.DagsterInvalidInvocationError(str(error)) from None
        file = request.target_path / f"{proposal.pipeline_id}.yaml"
        file.write_text(proposal.text, encoding="utf-8")
