"""Spark's access to a checkpoint in HDFS: Hadoop's client, which is in the pyspark wheel, set up for a session."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from glassflow_dagster.stream.spark.session import CHECKPOINT_FILES, java

_CONFIGURATION = "HADOOP_CONF_DIR"
_FILES = ("core-site.xml", "hdfs-site.xml")
# Writes beside the place of a file and renames, which in HDFS is one step that fails if the place is taken.
_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


def use_hdfs(spark: SparkSession) -> None:
    """Let a session keep its checkpoints in HDFS, with Hadoop's own settings where HADOOP_CONF_DIR names them."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    folder = os.environ.get(_CONFIGURATION)
    for file in (Path(folder) / name for name in _FILES) if folder else ():
        if file.exists():
            configuration.addResource(java(spark).org.apache.hadoop.fs.Path(file.absolute().as_uri()))
    spark.conf.set(CHECKPOINT_FILES, _MANAGER)
