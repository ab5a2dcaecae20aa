package glassflow

import java.time.Duration

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.streaming._

/** A record on its way through deduplication: its key, its source's number, its place in Kafka, and the rest, packed.
  * A refused record passes and leaves no trace in the state; its key says so (KeyBytes.ofRefused). */
case class Event(key: Array[Byte], source: Int, topic: Int, partition: Int, offset: Long, payload: Array[Byte])
    extends Placed

/** What became of the records of one key in one batch.
  *
  * payload: the record that goes on, null when the key was known; duplicates: how many others were dropped. */
case class Verdict(topic: Int, partition: Int, offset: Long, payload: Array[Byte], duplicates: Long)

/** A key that a source's events had, and the millisecond since 1970 from which it is not known any more. */
case class KnownKey(key: Array[Byte], source: Int, until: Long)

/** Lets the first event of a key pass and drops the others until the window has gone by.
  *
  * The clock is the batch's own time, which Spark logs with the batch: a replay decides the same. A key first seen at
  * b0 is known while b - b0 < window; duplicates do not prolong it. Among the events of one batch the least
  * (topic, partition, offset) is the first. Each source has keys and a window of its own; one without a window has no
  * events here that are not refused.
  *
  * The state of a key is until when it is known. Spark forgets it then or, of a key that was put there, later. */
class FirstSeen(windowsMs: Array[Long]) extends StatefulProcessor[Array[Byte], Event, Verdict] {
  @transient private var seen: Array[ValueState[Long]] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = seen = FirstSeen.states(getHandle, windowsMs)

  override def handleInputRows(key: Array[Byte], rows: Iterator[Event], timers: TimerValues): Iterator[Verdict] =
    if (key(0) == KeyBytes.REFUSED) rows.map(FirstSeen.goesOn(_, 0))
    else {
      val now = timers.getCurrentProcessingTimeInMs()
      val first = new Array[Event](seen.length)
      val count = new Array[Long](seen.length)
      while (rows.hasNext) {
        val next = rows.next()
        val source = next.source
        if (first(source) == null || next.precedes(first(source))) first(source) = next
        count(source) += 1
      }
      // At once: the state belongs to this key until this method returns.
      var verdicts = List.empty[Verdict]
      var source = seen.length - 1
      while (source >= 0) {
        if (first(source) != null) verdicts = judge(source, now, first(source), count(source)) :: verdicts
        source -= 1
      }
      verdicts.iterator
    }

  private def judge(source: Int, now: Long, first: Event, count: Long): Verdict =
    // 0 of a key that has no state.
    if (seen(source).get() > now) Verdict(first.topic, first.partition, first.offset, null, count)
    else {
      seen(source).update(now + windowsMs(source))
      FirstSeen.goesOn(first, count - 1)
    }
}

/** Puts keys into the state of `FirstSeen` as if it had seen them. */
class PutKnownKeys(windowsMs: Array[Long]) extends StatefulProcessor[Array[Byte], KnownKey, Verdict] {
  @transient private var seen: Array[ValueState[Long]] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = seen = FirstSeen.states(getHandle, windowsMs)

  override def handleInputRows(key: Array[Byte], rows: Iterator[KnownKey], timers: TimerValues): Iterator[Verdict] = {
    rows.foreach(known => seen(known.source).update(known.until))
    Iterator.empty
  }
}

object FirstSeen {
  def states(handle: StatefulProcessorHandle, windowsMs: Array[Long]): Array[ValueState[Long]] =
    windowsMs.zipWithIndex.map { case (windowMs, source) =>
      if (windowMs == 0) null
      else {
        val lifetime = TTLConfig(Duration.ofMillis(windowMs))
        handle.getValueState[Long](stateName(source), Encoders.scalaLong, lifetime)
      }
    }

  private def goesOn(e: Event, duplicates: Long): Verdict = Verdict(e.topic, e.partition, e.offset, e.payload, duplicates)

  private implicit val verdict: Encoder[Verdict] = Encoders.product[Verdict]

  /** The names are kept in checkpoints. */
  private def stateName(source: Int): String = if (source == 0) "seen" else s"seen$source"

  /** Called from Python. Columns in: those of Event; out: those of Verdict. windowsMs: of each source, 0 for one whose
    * events are not deduplicated. */
  def apply(events: Dataset[Row], windowsMs: java.util.List[Number]): Dataset[Row] = {
    val windows = windowsMs.asScala.map(_.longValue).toArray
    implicit val event: Encoder[Event] = Encoders.product[Event]
    Keyed.process(events, new FirstSeen(windows), TimeMode.ProcessingTime())
  }

  /** Called from Python, to make the state of a checkpoint: the stream has no rows, but a state that `apply` goes on
    * with. Columns in: those of KnownKey. */
  def putKnown(keys: Dataset[Row], windowsMs: java.util.List[Number]): Dataset[Row] = {
    val windows = windowsMs.asScala.map(_.longValue).toArray
    implicit val known: Encoder[KnownKey] = Encoders.product[KnownKey]
    Keyed.process(keys, new PutKnownKeys(windows), TimeMode.ProcessingTime())
  }
}
