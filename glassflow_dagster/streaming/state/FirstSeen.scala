package glassflow

import java.time.Duration

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.streaming._

/** A record on its way through deduplication: its key, its place in Kafka, and the rest, packed.
  * A refused record (admitted = false) passes and leaves no trace in the state. */
case class Event(key: Array[Byte], admitted: Boolean, topic: Int, partition: Int, offset: Long, payload: Array[Byte])
    extends Placed

/** What became of the records of one key in one batch.
  *
  * payload: the record that goes on, null when the key was known; duplicates: how many others were dropped. */
case class Verdict(topic: Int, partition: Int, offset: Long, payload: Array[Byte], duplicates: Long)

/** Lets the first event of a key pass and drops the others until the window has gone by.
  *
  * The clock is the batch's own time, which Spark logs with the batch: a replay decides the same. A key first seen at
  * b0 is known while b - b0 < window; duplicates do not prolong it. Among the events of one batch the least
  * (topic, partition, offset) is the first. */
class FirstSeen(windowMs: Long) extends StatefulProcessor[Array[Byte], Event, Verdict] {
  @transient private var seen: ValueState[Boolean] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    seen = getHandle.getValueState[Boolean]("seen", Encoders.scalaBoolean, TTLConfig(Duration.ofMillis(windowMs)))

  override def handleInputRows(key: Array[Byte], rows: Iterator[Event], timers: TimerValues): Iterator[Verdict] =
    if (key(0) == KeyBytes.REFUSED) rows.map(FirstSeen.goesOn(_, 0))
    else {
      var first = rows.next()
      var count = 1L
      while (rows.hasNext) {
        val next = rows.next()
        if (next.precedes(first)) first = next
        count += 1
      }
      if (seen.exists()) Iterator.single(Verdict(first.topic, first.partition, first.offset, null, count))
      else {
        seen.update(true)
        Iterator.single(FirstSeen.goesOn(first, count - 1))
      }
    }
}

object FirstSeen {
  private def goesOn(e: Event, duplicates: Long): Verdict = Verdict(e.topic, e.partition, e.offset, e.payload, duplicates)

  /** Called from Python. Columns in: those of Event; out: those of Verdict. */
  def apply(events: Dataset[Row], windowMs: Long): Dataset[Row] = {
    implicit val key: Encoder[Array[Byte]] = Encoders.BINARY
    implicit val event: Encoder[Event] = Encoders.product[Event]
    implicit val verdict: Encoder[Verdict] = Encoders.product[Verdict]
    events
      .groupBy(events("key"))
      .as[Array[Byte], Event]
      .transformWithState(new FirstSeen(windowMs), TimeMode.ProcessingTime(), OutputMode.Append())
      .toDF()
  }
}
