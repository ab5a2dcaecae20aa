package glassflow

import java.nio.ByteBuffer
import java.util.Arrays

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.streaming._

/** A record on its way through deduplication by event time: its key, its place in Kafka, its time in microseconds since
  * 1970, whether it passes also when it is late, and the rest, packed. The time of a refused record means nothing.
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

/** What became of a record, and of the duplicates beside it.
  *
  * payload: the record, null where there are only duplicates to be counted; watermark: for a late record that goes no
  * further, what it is behind, in milliseconds since 1970, else null; duplicates: how many others were dropped.
  */
case class TimedVerdict(
    topic: Int,
    partition: Int,
    offset: Long,
    payload: Array[Byte],
    watermark: java.lang.Long,
    duplicates: Long
)

/** Lets an event pass unless its key has an accepted one nearer than the window in event time, before or after it.
  *
  * Events are taken batch by batch, and within a batch by (topic, partition, offset): of two that are too near the
  * first one stays. A key may have several accepted events, each a window or more from the others; their times are its
  * state. A time counts until the watermark has passed it by a window: then only late events could be near it. An event
  * that is behind the watermark and near to no time that counts is late; where it says `keepLate` it passes all the
  * same. All this is decided by the records and the batch's watermark, which Spark logs: a replay decides the same.
  *
  * What counts no longer is removed by a key's timer, of which a key with state has exactly one: Spark finds the timers
  * that are due by an index, so a batch costs nothing for the keys that it has nothing to do with.
  */
class EventTimeDedup(windowUs: Long)
    extends StatefulProcessor[Array[Byte], TimedEvent, TimedVerdict] {
  import EventTimeDedup._

  @transient private var accepted: ValueState[Array[Byte]] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    accepted = getHandle.getValueState[Array[Byte]]("accepted", Encoders.BINARY, TTLConfig.NONE)

  override def handleInputRows(
      key: Array[Byte],
      rows: Iterator[TimedEvent],
      timers: TimerValues
  ): Iterator[TimedVerdict] =
    if (key(0) == KeyBytes.REFUSED) rows.map(goesOn)
    else {
      val watermarkMs = timers.getCurrentWatermarkInMs()
      val stored = accepted.get()
      val times = new AcceptedTimes(stored, windowUs, watermarkUs(watermarkMs))
      val verdicts = judge(inOrder(rows), times, watermarkMs)
      if (times.grew) remember(times, isNew = stored == null)
      verdicts
    }

  private def judge(events: Iterator[TimedEvent], times: AcceptedTimes, watermarkMs: Long): Iterator[TimedVerdict] = {
    val behind = watermarkUs(watermarkMs)
    val verdicts = new ArrayBuffer[TimedVerdict](1)
    var firstDuplicate: TimedEvent = null
    var duplicates = 0L
    events.foreach { event =>
      if (times.haveNear(event.time)) {
        if (duplicates == 0) firstDuplicate = event
        duplicates += 1
      } else if (event.time < behind && !event.keepLate) verdicts += goesOn(event).copy(watermark = watermarkMs)
      else {
        times.add(event.time)
        verdicts += goesOn(event)
      }
    }
    if (duplicates > 0 && verdicts.isEmpty) verdicts += goesOn(firstDuplicate).copy(payload = null)
    if (duplicates > 0) verdicts(0) = verdicts(0).copy(duplicates = duplicates)
    verdicts.iterator
  }

  override def handleExpiredTimer(
      key: Array[Byte],
      timers: TimerValues,
      expired: ExpiredTimerInfo
  ): Iterator[TimedVerdict] = {
    val times = new AcceptedTimes(accepted.get(), windowUs, watermarkUs(timers.getCurrentWatermarkInMs()))
    if (times.toBytes.isEmpty) accepted.clear() else remember(times, isNew = true)
    Iterator.empty
  }

  private def remember(times: AcceptedTimes, isNew: Boolean): Unit = {
    val bytes = times.toBytes
    // Late events alone leave nothing to remember.
    if (!isNew || bytes.nonEmpty) accepted.update(bytes)
    if (isNew && bytes.nonEmpty) getHandle.registerTimer(times.expiryMs)
  }
}

object EventTimeDedup {
  private def goesOn(e: TimedEvent): TimedVerdict = TimedVerdict(e.topic, e.partition, e.offset, e.payload, null, 0)

  /** Spark's watermark is 0 until there is one; no event is late then. */
  private def watermarkUs(ms: Long): Long = if (ms == 0) Long.MinValue else ms * 1000

  private def inOrder(events: Iterator[TimedEvent]): Iterator[TimedEvent] = {
    val first = events.next()
    if (!events.hasNext) Iterator.single(first)
    else (Iterator.single(first) ++ events).toArray.sortWith(_.precedes(_)).iterator
  }

  /** Called from Python. Columns in: those of TimedEvent, from a stream with a watermark; none of them may be the
    * watermark's own column, or Spark would drop late rows in silence. Columns out: those of TimedVerdict.
    */
  def apply(events: Dataset[Row], windowUs: Long): Dataset[Row] = {
    implicit val event: Encoder[TimedEvent] = Encoders.product[TimedEvent]
    implicit val verdict: Encoder[TimedVerdict] = Encoders.product[TimedVerdict]
    Keyed.byKey(events, new EventTimeDedup(windowUs), TimeMode.EventTime())
  }
}

/** A key's accepted times that still count, ascending, and those that a batch adds.
  *
  * stored: 8 bytes a time; null for none. The form is kept in checkpoints: never change it.
  */
private class AcceptedTimes(stored: Array[Byte], windowUs: Long, watermarkUs: Long) {
  private var times: Array[Long] = read
  private var size = times.length
  var grew = false

  private def counts(time: Long): Boolean = watermarkUs == Long.MinValue || time > watermarkUs - windowUs

  private def read: Array[Long] =
    if (stored == null) Array.emptyLongArray
    else {
      val all = new Array[Long](stored.length / 8)
      ByteBuffer.wrap(stored).asLongBuffer.get(all)
      all.filter(counts)
    }

  def haveNear(time: Long): Boolean = {
    val after = firstAfter(time)
    (after > 0 && time - times(after - 1) < windowUs) || (after < size && times(after) - time < windowUs)
  }

  def add(time: Long): Unit = {
    if (size == times.length) times = Arrays.copyOf(times, math.max(1, 2 * size))
    val place = firstAfter(time)
    System.arraycopy(times, place, times, place + 1, size - place)
    times(place) = time
    size += 1
    grew = true
  }

  private def firstAfter(time: Long): Int = {
    val found = Arrays.binarySearch(times, 0, size, time)
    if (found >= 0) found else -found - 1
  }

  def toBytes: Array[Byte] = {
    val counting = times.take(size).filter(counts)
    val bytes = ByteBuffer.allocate(8 * counting.length)
    bytes.asLongBuffer.put(counting)
    bytes.array
  }

  /** When the last of the times has been passed by a window. Rounded up to Spark's milliseconds; never before the first
    * watermark, which would be no watermark yet.
    */
  def expiryMs: Long = math.max(1, -Math.floorDiv(-(times(size - 1) + windowUs), 1000L))
}
