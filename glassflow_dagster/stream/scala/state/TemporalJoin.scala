package glassflow

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.streaming._

/** The input of the join: one record.
  *
  * side: LEFT, RIGHT, or PASSES for a record that is not joined (a dead letter, a dropped record, a count of
  * duplicates); key: the join key, or the group of its Kafka partition (KeyBytes.ofRefused) where the record passes or
  * its key is null; time: microseconds since 1970, only used on the event clock; maxEventTime: the time to which the
  * record may advance its side's newest event time, likewise; keepLate: whether it is joined even if it is late, as a
  * replayed dead letter is; duplicates: how many other records of its dedup key were dropped; payload: the packed
  * output fields, or the packed columns of a record that passes.
  */
case class JoinInput(
    key: Array[Byte],
    side: Int,
    topic: Int,
    partition: Int,
    offset: Long,
    time: Long,
    maxEventTime: Long,
    keepLate: Boolean,
    duplicates: Long,
    payload: Array[Byte]
)

/** The output of the join: a joined row (left is set), a record that passes (passing is set), or counts only.
  *
  * The first row of a key in a batch has the counts of the key's records, the others have zeros: taken, the events that
  * were not late; matched and unmatched, the left events that were decided; accepted, the right events; waiting, by how
  * many the left events that wait for a match have become more or, if negative, fewer; the newest event times are
  * Long.MinValue without an event. The position is that of the left event, or of the record that passes. right is null
  * for a left event without a match.
  */
case class Joined(
    topic: Int,
    partition: Int,
    offset: Long,
    rightTopic: Int,
    rightPartition: Int,
    rightOffset: Long,
    left: Array[Byte],
    right: Array[Byte],
    passing: Array[Byte],
    duplicates: Long,
    taken: Long,
    accepted: Long,
    matched: Long,
    unmatched: Long,
    waiting: Long,
    late: Long,
    nullKeys: Long,
    leftMaxEventTime: Long,
    rightMaxEventTime: Long
)

/** Joins each left event with right events of its key by time.
  *
  * A right event matches a left one if it is before it (or at its time) by less than the right window, or after it by
  * less than the left window. `LatestMatch` takes the latest match before the left event, else the first one after it;
  * `EveryMatch` takes all. A left event without a match at the end of its window is unmatched: it is counted, and with
  * `keepUnmatched` makes a row without a right event.
  *
  * This rule holds on both clocks. On the processing clock an event's time is that of its batch, and everything up to
  * the batch has arrived. On the event clock everything before the watermark has arrived; an event behind it is late
  * and dropped, or with `keepLate` joined with what is still in the state. Spark logs both clocks with the batch, so a
  * replay decides the same.
  *
  * A key has one timer, at the next time at which something can be decided or removed.
  */
class TemporalJoin(matching: Matching, keepUnmatched: Boolean, onEventClock: Boolean)
    extends StatefulProcessor[Array[Byte], JoinInput, Joined] {
  import TemporalJoin._

  @transient private var held: ValueState[Array[Byte]] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    held = getHandle.getValueState[Array[Byte]]("held", Encoders.BINARY, TTLConfig.NONE)

  override def handleInputRows(key: Array[Byte], rows: Iterator[JoinInput], timers: TimerValues): Iterator[Joined] =
    if (key(0) == KeyBytes.REFUSED) rows.map(withoutKey)
    else {
      val stored = held.get()
      val state = if (stored == null) JoinState.empty else JoinState.fromBytes(stored)
      val outcome = new Outcome
      val (lefts, rights) = (new ArrayBuffer[BufferedEvent], new ArrayBuffer[BufferedEvent])
      val complete = completeUs(timers)
      var first: JoinInput = null
      rows.foreach { row =>
        if (first == null) first = row
        outcome.see(row)
        val time = if (onEventClock) row.time else timers.getCurrentProcessingTimeInMs() * 1000
        if (onEventClock && time < complete && !row.keepLate) outcome.late += 1
        else {
          outcome.taken += 1
          val event = new BufferedEvent(time, row.topic, row.partition, row.offset, row.payload, matched = false)
          if (row.side == LEFT) lefts += event
          else {
            rights += event
            outcome.accepted += 1
          }
        }
      }
      outcome.waiting += lefts.size
      val rowsOut = matching.settle(state, lefts, rights, complete, outcome)
      remember(state, isNew = stored == null, timers)
      emit(rowsOut, outcome, first.topic, first.partition, first.offset)
    }

  override def handleExpiredTimer(
      key: Array[Byte],
      timers: TimerValues,
      expired: ExpiredTimerInfo
  ): Iterator[Joined] = {
    val stored = held.get()
    if (stored == null) Iterator.empty
    else {
      val state = JoinState.fromBytes(stored)
      val outcome = new Outcome
      if (state.timerMs == expired.getExpiryTimeInMs()) state.timerMs = 0
      val some = if (state.lefts.isEmpty) state.rights(0) else state.lefts(0)
      val rowsOut = matching.settle(state, new ArrayBuffer, new ArrayBuffer, completeUs(timers), outcome)
      remember(state, isNew = false, timers)
      if (outcome.isNothing) Iterator.empty else emit(rowsOut, outcome, some.topic, some.partition, some.offset)
    }
  }

  /** The time in microseconds before which all events have arrived. Spark's watermark is 0 until there is one. */
  private def completeUs(timers: TimerValues): Long =
    if (!onEventClock) timers.getCurrentProcessingTimeInMs() * 1000 + 1
    else if (timers.getCurrentWatermarkInMs() == 0) Long.MinValue
    else timers.getCurrentWatermarkInMs() * 1000

  /** Write the key's state, or remove an empty one, and set its timer. */
  private def remember(state: JoinState, isNew: Boolean, timers: TimerValues): Unit = {
    val before = state.timerMs
    // A timer fires when the clock is past its time, so it is set one millisecond before `wakeUs`. Spark only looks for
    // timers after the clock of the last batch: one that is not after it would never fire.
    val next = (if (onEventClock) timers.getCurrentWatermarkInMs() else timers.getCurrentProcessingTimeInMs()) + 1
    val wanted = if (state.isEmpty) 0L else math.max(next, -Math.floorDiv(-matching.wakeUs(state), 1000L) - 1)
    if (wanted != 0 && (before == 0 || wanted < before)) {
      if (before != 0) getHandle.deleteTimer(before)
      getHandle.registerTimer(wanted)
      state.timerMs = wanted
    } else if (wanted == 0 && before != 0) getHandle.deleteTimer(before)
    if (!state.isEmpty) held.update(state.toBytes)
    else if (!isNew) held.clear()
  }

  /** The output for a key: its rows, the first one with the counts, or a row at this position with the counts only. */
  private def emit(
      rows: Iterator[(BufferedEvent, BufferedEvent)],
      outcome: Outcome,
      topic: Int,
      partition: Int,
      offset: Long
  ): Iterator[Joined] = {
    val written = rows.filter { case (_, right) => right != null || keepUnmatched }.map { case (left, right) =>
      row(left, right)
    }
    if (written.hasNext) {
      val first = outcome.on(written.next())
      Iterator.single(first) ++ written
    } else Iterator.single(outcome.on(Nothing.copy(topic = topic, partition = partition, offset = offset)))
  }

  /** The output for a record without a key: it passes, or it is an event with a null key, which matches nothing. */
  private def withoutKey(record: JoinInput): Joined = {
    val placed = Nothing.copy(
      topic = record.topic,
      partition = record.partition,
      offset = record.offset,
      duplicates = record.duplicates
    )
    record.side match {
      case LEFT =>
        val row = if (keepUnmatched) placed.copy(left = record.payload) else placed
        row.copy(taken = 1, unmatched = 1, nullKeys = 1, leftMaxEventTime = record.maxEventTime)
      case RIGHT => placed.copy(taken = 1, accepted = 1, nullKeys = 1, rightMaxEventTime = record.maxEventTime)
      case _ => placed.copy(passing = record.payload)
    }
  }
}

object TemporalJoin {
  val LEFT = 0
  val RIGHT = 1
  val PASSES = -1

  private val Nothing =
    Joined(0, 0, 0, -1, -1, -1, null, null, null, 0, 0, 0, 0, 0, 0, 0, 0, Long.MinValue, Long.MinValue)

  private def row(left: BufferedEvent, right: BufferedEvent): Joined = {
    val placed = Nothing.copy(topic = left.topic, partition = left.partition, offset = left.offset, left = left.payload)
    if (right == null) placed
    else placed.copy(
      rightTopic = right.topic,
      rightPartition = right.partition,
      rightOffset = right.offset,
      right = right.payload
    )
  }

  /** Called from Python. Columns in: those of JoinInput; out: those of Joined. Windows in microseconds.
    *
    * onEventClock: the stream has a watermark; its column must not be one of JoinInput's, or Spark would drop late
    * rows.
    */
  def apply(
      records: Dataset[Row],
      leftWindowUs: Long,
      rightWindowUs: Long,
      everyMatch: Boolean,
      keepUnmatched: Boolean,
      onEventClock: Boolean
  ): Dataset[Row] = {
    implicit val side: Encoder[JoinInput] = RecordEncoder.of[JoinInput]
    implicit val joined: Encoder[Joined] = RecordEncoder.of[Joined]
    val matching =
      if (everyMatch) new EveryMatch(leftWindowUs, rightWindowUs) else new LatestMatch(leftWindowUs, rightWindowUs)
    val clock = if (onEventClock) TimeMode.EventTime() else TimeMode.ProcessingTime()
    Keyed.byKey(records, new TemporalJoin(matching, keepUnmatched, onEventClock), clock)
  }
}

/** The counts of a key's records in one batch: the fields of the same names in Joined. */
private class Outcome {
  var taken, accepted, matched, unmatched, waiting, late = 0L
  private var duplicates = 0L
  private var leftMaxEventTime, rightMaxEventTime = Long.MinValue

  def see(record: JoinInput): Unit = {
    duplicates += record.duplicates
    if (record.side == TemporalJoin.LEFT) leftMaxEventTime = math.max(leftMaxEventTime, record.maxEventTime)
    else rightMaxEventTime = math.max(rightMaxEventTime, record.maxEventTime)
  }

  /** Whether no left event was decided. */
  def isNothing: Boolean = matched == 0 && unmatched == 0

  /** The row with these counts. */
  def on(row: Joined): Joined = row.copy(
    duplicates = duplicates,
    taken = taken,
    accepted = accepted,
    matched = matched,
    unmatched = unmatched,
    waiting = waiting,
    late = late,
    leftMaxEventTime = leftMaxEventTime,
    rightMaxEventTime = rightMaxEventTime
  )
}
