package glassflow

import java.nio.ByteBuffer
import java.util.Arrays

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.streaming._

/** The input of deduplication by event time: a record with its key, its position in Kafka, its event time in
  * microseconds since 1970, whether it passes even if it is late, and its other columns, packed. The time of a record
  * without a key is not used.
  */
case class TimedEvent(
    key: Array[Byte],
    topic: Int,
    partition: Int,
    offset: Long,
    time: Long,
    keepLate: Boolean,
    payload: Array[Byte]
) extends RecordPosition

/** The output of deduplication by event time: one record, and the number of duplicates that it stands for.
  *
  * payload: the record, null in a row that only counts duplicates; watermark: set for a late record that does not pass,
  * the watermark in milliseconds since 1970; duplicates: how many other records of the key were dropped in this batch.
  */
case class TimedDedupResult(
    topic: Int,
    partition: Int,
    offset: Long,
    payload: Array[Byte],
    watermark: java.lang.Long,
    duplicates: Long
)

/** Drops an event if an accepted event of its key is nearer in event time than the window, before or after it.
  *
  * Events are processed batch by batch, and within a batch by (topic, partition, offset): of two that are too near to
  * each other the first one is accepted. A key may have several accepted events, each at least a window from the
  * others; their times are the key's state. A time expires when the watermark has passed it by a window: then only late
  * events could be near it. An event behind the watermark that is near to no accepted time is late, and passes only
  * with `keepLate`. All this depends only on the records and the batch's watermark, which Spark logs: a replay decides
  * the same.
  *
  * Expired times are removed by a timer, of which each key with state has exactly one: Spark finds the timers that are
  * due by an index, so a batch costs nothing for the other keys.
  */
class EventTimeDedup(windowUs: Long)
    extends StatefulProcessor[Array[Byte], TimedEvent, TimedDedupResult] {
  import EventTimeDedup._

  @transient private var accepted: ValueState[Array[Byte]] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    accepted = getHandle.getValueState[Array[Byte]]("accepted", Encoders.BINARY, TTLConfig.NONE)

  override def handleInputRows(
      key: Array[Byte],
      rows: Iterator[TimedEvent],
      timers: TimerValues
  ): Iterator[TimedDedupResult] =
    if (key(0) == KeyBytes.REFUSED) rows.map(resultOf)
    else {
      val watermarkMs = timers.getCurrentWatermarkInMs()
      val stored = accepted.get()
      val times = new AcceptedTimes(stored, windowUs, watermarkUs(watermarkMs))
      val results = decide(inOrder(rows), times, watermarkMs)
      if (times.grew) remember(times, isNew = stored == null)
      results
    }

  /** Decide on the events of one key in one batch; adds the accepted times to `times`. */
  private def decide(
      events: Iterator[TimedEvent],
      times: AcceptedTimes,
      watermarkMs: Long
  ): Iterator[TimedDedupResult] = {
    val behind = watermarkUs(watermarkMs)
    val results = new ArrayBuffer[TimedDedupResult](1)
    var firstDuplicate: TimedEvent = null
    var duplicates = 0L
    events.foreach { event =>
      if (times.haveNear(event.time)) {
        if (duplicates == 0) firstDuplicate = event
        duplicates += 1
      } else if (event.time < behind && !event.keepLate) results += resultOf(event).copy(watermark = watermarkMs)
      else {
        times.add(event.time)
        results += resultOf(event)
      }
    }
    if (duplicates > 0 && results.isEmpty) results += resultOf(firstDuplicate).copy(payload = null)
    if (duplicates > 0) results(0) = results(0).copy(duplicates = duplicates)
    results.iterator
  }

  override def handleExpiredTimer(
      key: Array[Byte],
      timers: TimerValues,
      expired: ExpiredTimerInfo
  ): Iterator[TimedDedupResult] = {
    val times = new AcceptedTimes(accepted.get(), windowUs, watermarkUs(timers.getCurrentWatermarkInMs()))
    if (times.toBytes.isEmpty) accepted.clear() else remember(times, isNew = true)
    Iterator.empty
  }

  /** Write the key's accepted times into the state; a new state gets a timer. */
  private def remember(times: AcceptedTimes, isNew: Boolean): Unit = {
    val bytes = times.toBytes
    // If all new events were late with `keepLate`, their times may have expired already: nothing to store.
    if (!isNew || bytes.nonEmpty) accepted.update(bytes)
    if (isNew && bytes.nonEmpty) getHandle.registerTimer(times.expiryMs)
  }
}

object EventTimeDedup {
  private def resultOf(e: TimedEvent): TimedDedupResult =
    TimedDedupResult(e.topic, e.partition, e.offset, e.payload, null, 0)

  /** The watermark in microseconds. Spark's is 0 until there is one; no event is late then. */
  private def watermarkUs(ms: Long): Long = if (ms == 0) Long.MinValue else ms * 1000

  /** The events by their positions in Kafka. There is at least one. */
  private def inOrder(events: Iterator[TimedEvent]): Iterator[TimedEvent] = {
    val first = events.next()
    if (!events.hasNext) Iterator.single(first)
    else (Iterator.single(first) ++ events).toArray.sortWith(_.precedes(_)).iterator
  }

  /** Called from Python. Columns in: those of TimedEvent, from a stream with a watermark; none of them may be the
    * watermark's own column, or Spark would drop late rows in silence. Columns out: those of TimedDedupResult.
    */
  def apply(events: Dataset[Row], windowUs: Long): Dataset[Row] = {
    implicit val event: Encoder[TimedEvent] = RecordEncoder.of[TimedEvent]
    implicit val result: Encoder[TimedDedupResult] = RecordEncoder.of[TimedDedupResult]
    Keyed.byKey(events, new EventTimeDedup(windowUs), TimeMode.EventTime())
  }
}

/** A key's accepted times that have not expired, ascending, and those that a batch adds.
  *
  * stored: the times as they are in the state, 8 bytes each; null for none. The encoding is kept in checkpoints: never
  * change it.
  */
private class AcceptedTimes(stored: Array[Byte], windowUs: Long, watermarkUs: Long) {
  private var times: Array[Long] = read
  private var size = times.length
  var grew = false

  /** Whether a time has not expired: the watermark has not passed it by a window. */
  private def isLive(time: Long): Boolean = watermarkUs == Long.MinValue || time > watermarkUs - windowUs

  private def read: Array[Long] =
    if (stored == null) Array.emptyLongArray
    else {
      val all = new Array[Long](stored.length / 8)
      ByteBuffer.wrap(stored).asLongBuffer.get(all)
      all.filter(isLive)
    }

  def haveNear(time: Long): Boolean = {
    val after = firstAfter(time)
    (after > 0 && time - times(after - 1) < windowUs) || (after < size && times(after) - time < windowUs)
  }

  def add(time: Long): Unit = {
    if (size == times.length) times = Arrays.copyOf(times, math.max(1, 2 * size))
    val insertAt = firstAfter(time)
    System.arraycopy(times, insertAt, times, insertAt + 1, size - insertAt)
    times(insertAt) = time
    size += 1
    grew = true
  }

  /** The index of the first accepted time at or after this time. */
  private def firstAfter(time: Long): Int = {
    val found = Arrays.binarySearch(times, 0, size, time)
    if (found >= 0) found else -found - 1
  }

  def toBytes: Array[Byte] = {
    val live = times.take(size).filter(isLive)
    val bytes = ByteBuffer.allocate(8 * live.length)
    bytes.asLongBuffer.put(live)
    bytes.array
  }

  /** The time of the timer: the last accepted time plus the window, rounded up to Spark's milliseconds. At least 1, as
    * a watermark of 0 means that there is none yet.
    */
  def expiryMs: Long = math.max(1, -Math.floorDiv(-(times(size - 1) + windowUs), 1000L))
}
