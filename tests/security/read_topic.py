"""Reads a topic by Spark in a process of its own: `python -m tests.security.read_topic CONNECTION TOPIC FOLDER`.

CONNECTION: as JSON. Prints the values.
"""

import sys
from pathlib import Path

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.stores.kafka.client import java_libraries, java_options, spark_options
from glassflow_dagster.stream.spark.session import DRIVER_JAVA_OPTIONS, start_session, stop_session


def main(given: str, topic: str, folder: str) -> None:
    connection = KafkaConnection.model_validate_json(given)
    settings = {DRIVER_JAVA_OPTIONS: java_options(connection), "spark.master": "local[1]"}
    spark = start_session("read", Path(folder), settings, print, java_libraries(connection, print))
    options = {**spark_options(connection), "subscribe": topic}
    print([bytes(row.value).decode() for row in spark.read.format("kafka").options(**options).load().collect()])
    stop_session(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
