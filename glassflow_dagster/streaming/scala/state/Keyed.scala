package glassflow

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.functions.{call_function, lit}
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}

/** Hands rows with a key, as KeyBytes makes it, to a stateful processor. */
object Keyed {

  /** Those of a key together. Columns in: key BINARY and the others of I. Columns out: those of O. */
  def byKey[I: Encoder, O: Encoder](
      rows: Dataset[Row],
      processor: StatefulProcessor[Array[Byte], I, O],
      clock: TimeMode
  ): Dataset[Row] = {
    implicit val key: Encoder[Array[Byte]] = Encoders.BINARY
    rows.groupBy(rows("key")).as[Array[Byte], I].transformWithState(processor, clock, OutputMode.Append()).toDF()
  }

  /** Those of a shard of the keys together, in no order. Columns as in `byKey`. */
  def byShard[I: Encoder, O: Encoder](
      rows: Dataset[Row],
      processor: StatefulProcessor[Int, I, O],
      clock: TimeMode
  ): Dataset[Row] = {
    implicit val shard: Encoder[Int] = Encoders.scalaInt
    // As many as the state has: the driver sees to it.
    val partitions = lit(rows.sparkSession.conf.get("spark.sql.shuffle.partitions").toInt)
    val sharded = rows.withColumn("shard", call_function("glassflow_shard", rows("key"), partitions))
    sharded.groupBy(sharded("shard")).as[Int, I].transformWithState(processor, clock, OutputMode.Append()).toDF()
  }
}
