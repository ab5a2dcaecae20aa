package org.apache.spark.sql.inline

import java.util.UUID

import org.apache.spark.sql.{Dataset => AnyDataset, Row}
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution.LogicalRDD
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, WatermarkPropagator}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.OutputMode

/** Writes the first version of a new state, from rows that are no stream. */
object StateWriter {

  /** Rows as those of a batch of a stream: Spark plans stateful operators for these only. */
  def asStream(rows: AnyDataset[Row]): AnyDataset[Row] = {
    val dataset = rows.asInstanceOf[Dataset[Row]]
    val held = LogicalRDD.fromDataset(dataset.queryExecution.toRdd, dataset, isStreaming = true)
    Dataset.ofRows(dataset.sparkSession, held)
  }

  /** Run stages with states as the first batch of a query; what they return is dropped.
    *
    * checkpoint: the root of the new checkpoint. timeMs: the time of the batch, at which no timer may be due, since a
    * timer that has fired is removed. For the same reason there is no watermark.
    */
  def write(stages: AnyDataset[Row], checkpoint: String, timeMs: Long): Unit = {
    val session = stages.sparkSession.asInstanceOf[SparkSession]
    val query = UUID.randomUUID()
    val execution = new IncrementalExecution(
      session,
      stages.asInstanceOf[Dataset[Row]].queryExecution.analyzed,
      OutputMode.Append(),
      s"$checkpoint/state",
      query,
      UUID.randomUUID(),
      0,
      None,
      metadata(session, timeMs),
      WatermarkPropagator.noop(),
      isFirstBatch = true
    )
    val properties = BatchQuery.properties(query, 0)
    properties.foreach { case (name, value) => session.sparkContext.setLocalProperty(name, value) }
    try execution.toRdd.foreach(_ => ())
    finally properties.keys.foreach(session.sparkContext.setLocalProperty(_, null))
  }

  /** What the log of a query would have of the batch. Only in the session of a query Spark itself finds the number of
    * partitions there.
    */
  private def metadata(session: SparkSession, timeMs: Long): OffsetSeqMetadata = {
    val found = OffsetSeqMetadata(0, timeMs, session.conf)
    val partitions = SQLConf.SHUFFLE_PARTITIONS.key
    found.copy(conf = found.conf + (partitions -> session.conf.get(partitions)))
  }
}
