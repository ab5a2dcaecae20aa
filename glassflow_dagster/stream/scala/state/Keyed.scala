package glassflow

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.functions.{call_function, lit}
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}

/** Runs a stateful processor on rows grouped by their key, which is encoded by KeyBytes. */
object Keyed {

  /** Group the rows by key. Columns in: key BINARY and the other fields of I. Columns out: those of O. */
  def byKey[I: Encoder, O: Encoder](
      rows: Dataset[Row],
      processor: StatefulProcessor[Array[Byte], I, O],
      clock: TimeMode
  ): Dataset[Row] = {
    implicit val key: Encoder[Array[Byte]] = Encoders.BINARY
    rows.groupBy(rows("key")).as[Array[Byte], I].transformWithState(processor, clock, OutputMode.Append()).toDF()
  }

  /** Group the rows by the shard of their key (see Shards), in no order within a shard. Columns as in `byKey`. */
  def byShard[I: Encoder, O: Encoder](
      rows: Dataset[Row],
      processor: StatefulProcessor[Int, I, O],
      clock: TimeMode
  ): Dataset[Row] = {
    implicit val shard: Encoder[Int] = Encoders.scalaInt
    // The driver sets this to the number of partitions of the checkpoint's state.
    val partitions = lit(rows.sparkSession.conf.get("spark.sql.shuffle.partitions").toInt)
    val sharded = rows.withColumn("shard", call_function("glassflow_shard", rows("key"), partitions))
    sharded.groupBy(sharded("shard")).as[Int, I].transformWithState(processor, clock, OutputMode.Append()).toDF()
  }
}

/** A stateful processor that stays initialized for many batches, as in inline batches. */
trait ForManyBatches {

  /** Make ready for the next batch, in its task. For the first one, `init` does this. */
  def beginBatch(): Unit
}
