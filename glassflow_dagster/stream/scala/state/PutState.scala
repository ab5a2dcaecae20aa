package glassflow

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.streaming._

/** A part of a key's state: its value, or the time of one of its timers in milliseconds since 1970; null for none. */
case class StoredState(key: Array[Byte], value: Array[Byte], expiry: java.lang.Long)

/** Writes values and timers into the state of a processor that has one value for each key, which it calls `name`. */
class PutState(name: String) extends StatefulProcessor[Array[Byte], StoredState, StoredState] {
  @transient private var stored: ValueState[Array[Byte]] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    stored = getHandle.getValueState[Array[Byte]](name, Encoders.BINARY, TTLConfig.NONE)

  override def handleInputRows(
      key: Array[Byte],
      rows: Iterator[StoredState],
      timers: TimerValues
  ): Iterator[StoredState] = {
    rows.foreach { row =>
      if (row.value != null) stored.update(row.value)
      if (row.expiry != null) getHandle.registerTimer(row.expiry)
    }
    Iterator.empty
  }
}

object PutState {

  /** Called from Python. Columns in and out: those of StoredState; the stream returns no rows. name: of the state,
    * which `EventTimeDedup` calls accepted, and `TemporalJoin` held.
    */
  def apply(rows: Dataset[Row], name: String, onEventClock: Boolean): Dataset[Row] = {
    implicit val stored: Encoder[StoredState] = RecordEncoder.of[StoredState]
    Keyed.byKey(rows, new PutState(name), if (onEventClock) TimeMode.EventTime() else TimeMode.ProcessingTime())
  }
}
