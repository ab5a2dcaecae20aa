"""How drivers are started, and the command line of one."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from glassflow_dagster.control.heartbeat import pipeline_folder
from glassflow_dagster.control.log import LogFormat
from glassflow_dagster.control.sent_definition import FROM_STDIN, SentDefinition
from glassflow_dagster.definition.model.pipeline import PipelineConfig

DRIVER = (sys.executable, "-m", "glassflow_dagster.driver.run")
# Spark needs 10 to 20 s on a loaded machine; the rest is for servers that start at the same time.
LAUNCH_TIMEOUT = 180.0  # seconds


@dataclass(frozen=True)
class DriverOptions:
    """How a runner starts the drivers of its pipelines.

    state: the local folder of checkpoints, heartbeats and logs; of the runner's notes where drivers run elsewhere.
    create_table: create a missing table even when the definition has no `create_table`.
    timeout: the seconds that a start may take.
    spark_config: settings of the drivers' Spark sessions.
    environment: variables of the drivers besides those of this process.
    log_format: of the drivers' messages; None for what the environment says.
    pool: in place of the definitions'; None for that.
    """

    state: Path
    create_table: bool = False
    timeout: float = LAUNCH_TIMEOUT
    spark_config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    log_format: LogFormat | None = None
    pool: str | None = None

    def deployment(self, config: PipelineConfig) -> "Deployment":
        """Return how to start the driver of a definition on this host."""
        given = {each.name: getattr(self, each.name) for each in fields(DriverOptions)}
        return Deployment(**given, config=config)


@dataclass(frozen=True)
class Deployment(DriverOptions):
    """A pipeline to run on this host, and how to start its driver.

    properties_file: further Spark settings, which may be secrets; None for none.
    """

    config: PipelineConfig = field(kw_only=True)
    properties_file: Path | None = None

    @property
    def folder(self) -> Path:
        """The pipeline's local folder."""
        return pipeline_folder(self.state, self.config.pipeline_id)

    @property
    def command(self) -> list[str]:
        """The driver's command line."""
        origin = self.config.origin
        definition = str(origin.file.absolute()) if origin.file and origin.is_own_file else FROM_STDIN
        command = [*DRIVER, "--definition", definition, "--state", str(self.state.absolute())]
        command += ["--create-table"] if self.create_table else []
        command += ["--log-format", self.log_format.value] if self.log_format else []
        command += ["--pool", self.pool] if self.pool else []
        command += ["--properties-file", str(self.properties_file)] if self.properties_file else []
        for key, value in self.spark_config.items():
            command += ["--conf", f"{key}={value}"]
        return command

    @property
    def stdin(self) -> bytes:
        """The driver's standard input: a definition that is no file of its own, which may hold secrets; else empty."""
        origin = self.config.origin
        return b"" if origin.is_own_file else SentDefinition.of(self.config).model_dump_json().encode()
