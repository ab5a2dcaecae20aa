package glassflow

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}

/** Hands rows to a stateful processor, those of a key together. */
object Keyed {
  /** Columns in: key BINARY and the others of I. Columns out: those of O. */
  def process[I: Encoder, O: Encoder](
      rows: Dataset[Row], processor: StatefulProcessor[Array[Byte], I, O], clock: TimeMode): Dataset[Row] = {
    implicit val key: Encoder[Array[Byte]] = Encoders.BINARY
    rows.groupBy(rows("key")).as[Array[Byte], I].transformWithState(processor, clock, OutputMode.Append()).toDF()
  }
}
