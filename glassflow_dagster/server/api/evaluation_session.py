"""The Spark session in which expressions and definitions are tried; it starts with the first request for it."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.spark.session import start_session, stop_session
from glassflow_dagster.stream.spark.spark_errors import explain_failure


@dataclass
class EvaluationSession:
    """One local session for this process, used by one request at a time. report: gets progress."""

    report: Callable[[str], None]
    spark: SparkSession | None = None
    _lock: Lock = field(default_factory=Lock)
    _folder: "tempfile.TemporaryDirectory[str] | None" = None

    @contextmanager
    def use(self) -> Iterator[SparkSession]:
        """Yield the session; raises `GlassflowError` where Spark does not start, or fails in the block."""
        with self._lock:
            try:
                yield self._started()
            except (Py4JJavaError, PySparkException) as error:
                raise GlassflowError(explain_failure(error, rest="")) from error
            except (Py4JError, ConnectionError) as error:
                raise GlassflowError(
                    "Spark's JVM has ended: it was killed or ran out of memory; start the API again"
                ) from error

    def close(self) -> None:
        """Stop the session, if it has started."""
        with self._lock:
            if self.spark is not None:
                stop_session(self.spark)
                self.spark = None
            if self._folder is not None:
                self._folder.cleanup()

    def _started(self) -> SparkSession:
        if self.spark is None:
            self.report("api: starting Spark ...")
            self._folder = tempfile.TemporaryDirectory(prefix="glassflow-api-")
            settings = {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"}
            self.spark = start_session("api", Path(self._folder.name), settings, self.report)
        return self.spark
