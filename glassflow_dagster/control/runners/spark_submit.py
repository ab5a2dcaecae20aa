"""Runs drivers on this host, and their executors on a Spark cluster: what `spark-submit` calls client mode."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.heartbeat import make_pipeline_folder, pipeline_folder
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.runners.settings import SparkSubmitSettings, is_standalone
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.address import address_toward_master
from glassflow_dagster.runtime.spark_properties import write_properties

# The settings of a driver, beside its log.
_PROPERTIES = "runner.properties"
# The folder into which executors unpack the archive.
_UNPACKED = "environment"
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


@dataclass(frozen=True)
class SparkSubmitRunner(LocalRunner):
    """A `StreamRunner` for client mode: drivers are processes of this host, with all that follows from it."""

    settings: SparkSubmitSettings = field(default_factory=SparkSubmitSettings)

    def deployment(self, config: PipelineConfig) -> Deployment:
        """Return how to start the driver of a definition; its Spark settings are in a file that only this user reads.

        Raises `GlassflowError` for a pipeline that cannot run on a cluster.
        """
        require_for_cluster(config, self.pool)
        folder = pipeline_folder(self.state.absolute(), config.pipeline_id)
        file = folder / _PROPERTIES
        try:
            make_pipeline_folder(folder)
            write_properties(file, {**self._client_settings(config), **self.spark_config})
        except OSError as error:
            raise GlassflowError(
                f"{file}: cannot be written ({error.strerror}); choose another folder for state"
            ) from None
        return replace(
            super().deployment(config), spark_config={}, environment=self._with_python(), properties_file=file
        )

    def _client_settings(self, config: PipelineConfig) -> dict[str, str]:
        """Return the Spark settings of client mode; raises `GlassflowError` without a cluster."""
        given = {**config.spark, **self.spark_config}
        master = self.settings.master_in(given)
        if not is_standalone(master) and not any(self._variable(name) for name in _HADOOP):
            raise GlassflowError(
                f"runner spark-submit: master yarn needs {_HADOOP[0]}, the folder of Hadoop's settings"
            )
        address = self.settings.address or address_toward_master(master)
        settings = {
            "spark.master": master,
            "spark.submit.deployMode": "client",
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            **size_settings(config),
        }
        if self.settings.archive:
            settings["spark.archives"] = f"{self.settings.archive}#{_UNPACKED}"
        return settings

    def _with_python(self) -> dict[str, str]:
        """Return the driver's variables, with the Python that executors start."""
        python = f"./{_UNPACKED}/bin/python" if self.settings.archive else self.settings.python
        return {**({"PYSPARK_PYTHON": python} if python else {}), **self.environment}

    def _variable(self, name: str) -> str | None:
        """Return an environment variable of the drivers."""
        return self.environment.get(name) or os.environ.get(name)


def size_settings(config: PipelineConfig) -> Mapping[str, str]:
    """Return Spark's settings for the size that a definition asks for (`resources`), unless its `spark` has them."""
    cores = config.resources.cores if config.resources else None
    return {"spark.cores.max": str(cores)} if cores and "spark.cores.max" not in config.spark else {}


def require_for_cluster(config: PipelineConfig, pool: str | None) -> None:
    """Raise `GlassflowError` for a pipeline that cannot have executors on other hosts. pool: of the command line."""
    if config.state is None:
        raise GlassflowError(
            f"{config.pipeline_id}: other hosts cannot reach a local folder of state; name s3a://BUCKET/PREFIX, "
            "gs://BUCKET/PREFIX, abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX, hdfs://HOST:PORT/FOLDER, or "
            "file:///FOLDER for a folder that all hosts share, by state in the definition, --state or GLASSFLOW_STATE"
        )
    if pool or config.pool:
        raise GlassflowError(
            f"{config.pipeline_id}: pool {pool or config.pool!r} is a JVM of one host; remove it, or use runner local"
        )
