"""The component that turns pipeline definitions into assets: a folder of files, or one definition in `defs.yaml`.

The definitions keep GlassFlow's format; `defs.yaml` says how Dagster shows and runs them. A component brings its own
sensors and jobs, whose names begin with its name, and needs no resource of the code location: so several of them, each
with its own state, connections and alerts, stand beside each other and beside everything else.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver

from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.log import LogFormat
from glassflow_dagster.control.runners.choose import build_runner
from glassflow_dagster.control.state_folder import state_folder
from glassflow_dagster.definition.load import load_written
from glassflow_dagster.definition.model.state import STATE, is_url
from glassflow_dagster.definition.servers import CONNECTIONS
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import identifier
from glassflow_dagster.orchestration.build_definitions import (
    DEFAULT_NAME,
    Orchestration,
    build_folder_definitions,
    build_pipeline_definitions,
)
from glassflow_dagster.orchestration.component.attributes import (
    Alerts,
    AutomationAttributes,
    Connections,
    Op,
    ResolvedChecks,
    Runner,
)
from glassflow_dagster.orchestration.component.scaffolder import PipelineFolderScaffolder
from glassflow_dagster.orchestration.component.templates import as_written, text, texts_within
from glassflow_dagster.orchestration.options import Node, PipelineOptions

# What a template of `translation` can refer to, besides `spec`.
_TRANSLATION = TranslationFnResolver[Node](template_vars_for_translation_fn=lambda node: {"node": node})
_TRANSLATION.description = (
    "changes the spec of each asset: key, description, metadata and so on; in templates `spec` is the spec, and `node` "
    "has kind (topic, deduplicated, joined or table), pipeline_id, topic, source_id, database and table"
)


@dg.scaffold_with(PipelineFolderScaffolder)
class PipelineFolder(dg.Component, dg.Model, dg.Resolvable):
    """Streams from Kafka to ClickHouse: filtered, deduplicated, joined, and written exactly once.

    Each pipeline definition (GlassFlow's format, YAML or JSON) becomes assets: its topics, its deduplicated and joined
    streams, and its ClickHouse table with asset checks that compare Kafka with ClickHouse. Materializing them launches
    the stream, or checks the one that runs. Sensors check the streams' health, restart failed ones and send alerts.
    """

    folder: Annotated[
        str | None,
        text(
            "folder of definitions, one pipeline a file, relative to this file; if neither folder nor pipeline is "
            "given: the folder of this file",
            ["pipelines", "{{ context.project_root }}/pipelines"],
        ),
    ] = None
    pipeline: Annotated[
        Mapping[str, Any] | None,
        as_written(
            "one definition, written here instead of in a folder; its references are ${VAR}, it has no templates",
            [{"pipeline_id": "orders", "sources": ["..."], "sink": "..."}],
        ),
    ] = None
    name: Annotated[
        str | None,
        text("begins the names of the component's sensors and jobs; if omitted: the path of its folder in defs/"),
    ] = None
    key_prefix: Annotated[
        str | Sequence[str],
        dg.Resolver.default(
            description="begins the keys of all assets", examples=["production", ["production", "streams"]]
        ),
    ] = ()
    table_key_prefix: Annotated[
        str | Sequence[str] | None,
        dg.Resolver.default(
            description="makes a table's key this prefix and the table's name, as that of a dbt source is (its name "
            "and the table's); if omitted: key_prefix, pipeline, table",
            examples=["analytics"],
        ),
    ] = None
    group_name: Annotated[str | None, text("group of all assets; if omitted: a group for each pipeline")] = None
    owners: Annotated[
        Sequence[str],
        dg.Resolver.default(
            description="owners of all assets: team:NAME or an e-mail address", examples=[["team:streams"]]
        ),
    ] = ()
    tags: Annotated[Mapping[str, str], texts_within("tags of all assets, besides those they have anyway")] = {}
    kinds: Annotated[
        Sequence[str], dg.Resolver.default(description="kinds of all assets, besides those they have anyway")
    ] = ()
    translation: Annotated[TranslationFn[Node] | None, _TRANSLATION] = None
    op: Annotated[Op, dg.Resolver.default(description="the op of each pipeline")] = Op()
    runner: Annotated[Runner, dg.Resolver.default(description="where the streams run")] = Runner()
    connections: Annotated[
        Connections, dg.Resolver.default(description="keys of connections that replace those of the definitions")
    ] = Connections()
    checks: ResolvedChecks = {}  # noqa: RUF012 - pydantic copies it
    automation: Annotated[
        AutomationAttributes, dg.Resolver.default(description="what the sensors do by themselves")
    ] = AutomationAttributes()
    alerts: Annotated[Alerts | None, dg.Resolver.default(description="where alerts are sent")] = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build Dagster's definitions; contacts no server.

        An invalid file of the folder becomes an asset that fails with its errors; an invalid inline definition, and
        invalid attributes, fail the load.
        """
        file = context.path / "defs.yaml" if context.path.is_dir() else context.path
        try:
            return self._build(context.path if context.path.is_dir() else context.path.parent, file, context)
        except GlassflowError as error:
            raise dg.DagsterInvalidDefinitionError(f"{file}: {error}") from None

    def _build(self, here: Path, file: Path, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions; raises `GlassflowError` for attributes that do not fit. here: the file's folder."""
        if self.folder is not None and self.pipeline is not None:
            raise GlassflowError("attributes: folder and pipeline exclude each other; remove one")
        replaced = self.connections.replaced()
        environment = {CONNECTIONS: json.dumps(replaced)} if replaced else {}
        state = self.runner.state
        if state and is_url(state):
            environment[STATE] = state
            state = None
        orchestration = Orchestration(
            name=identifier(self.name) if self.name else _name_of(here, context),
            runner=build_runner(
                self.runner.chosen(),
                DriverOptions(
                    state=(here / state).absolute() if state else state_folder({**os.environ, **environment}),
                    create_table=self.runner.create_table,
                    timeout=self.runner.timeout,
                    spark_config=self.runner.settings(),
                    environment=environment,
                    log_format=LogFormat(self.runner.log_format) if self.runner.log_format else None,
                ),
            ),
            options=self._options(),
            automation=self.automation.options(),
            alerts=(self.alerts or Alerts()).channels(),
            spark_config=self.runner.settings(),
        )
        loading = {**os.environ, **environment}
        if self.pipeline is not None:
            return build_pipeline_definitions(load_written(self.pipeline, file, loading), orchestration)
        folder = (here / (self.folder or ".")).absolute()
        if not folder.is_dir():
            raise GlassflowError(f"attributes.folder: {folder} is not a folder; create it or correct the attribute")
        return build_folder_definitions(folder, orchestration, loading)

    def _options(self) -> PipelineOptions:
        """Return how the assets and checks appear in Dagster."""
        table_prefix = self.table_key_prefix
        return PipelineOptions(
            key_prefix=_parts(self.key_prefix),
            table_key_prefix=None if table_prefix is None else _parts(table_prefix),
            group_name=self.group_name,
            owners=tuple(self.owners),
            tags=dict(self.tags),
            kinds=frozenset(self.kinds),
            translation=self.translation,
            op=self.op.options(),
            checks=self.checks,
        )


def _parts(prefix: str | Sequence[str]) -> tuple[str, ...]:
    """Return a key prefix as its parts; a text may have several, with slashes between them."""
    return tuple(prefix.split("/")) if isinstance(prefix, str) else tuple(prefix)


def _name_of(here: Path, context: dg.ComponentLoadContext) -> str:
    """Return the name of a component without one: the path of its folder in defs/; `glassflow` for defs/ itself."""
    try:
        parts = here.absolute().relative_to(context.defs_module_path.absolute()).parts
    except ValueError:
        parts = (here.name,)
    name = "__".join(identifier(part) for part in parts) or DEFAULT_NAME
    # Several components in one file have a number.
    key = getattr(context.component_path, "instance_key", None)
    return f"{name}_{key + 1}" if isinstance(key, int) and key else name
