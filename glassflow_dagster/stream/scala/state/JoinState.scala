package glassflow

import java.nio.ByteBuffer

import scala.collection.mutable.ArrayBuffer

/** An event in the join's state: its time in microseconds since 1970, its position in Kafka, its fields, packed, and
  * for a left event of `match: all` whether it has already been joined with a right one.
  */
final class BufferedEvent(
    val time: Long,
    val topic: Int,
    val partition: Int,
    val offset: Long,
    val payload: Array[Byte],
    var matched: Boolean
) extends RecordPosition {

  /** The order of events: by time, then by position in Kafka. */
  def isBefore(other: BufferedEvent): Boolean = if (time != other.time) time < other.time else precedes(other)
}

/** The events of one side and one key, in their order. */
final class BufferedEvents(initial: Array[BufferedEvent]) {
  private var events: Array[BufferedEvent] = initial

  def size: Int = events.length
  def isEmpty: Boolean = events.length == 0
  def apply(i: Int): BufferedEvent = events(i)
  def last: BufferedEvent = events(events.length - 1)
  def iterator: Iterator[BufferedEvent] = events.iterator

  def add(more: ArrayBuffer[BufferedEvent]): Unit =
    if (more.nonEmpty) {
      val all = new Array[BufferedEvent](events.length + more.length)
      System.arraycopy(events, 0, all, 0, events.length)
      more.copyToArray(all, events.length)
      events = all.sortWith(_.isBefore(_))
    }

  def keep(wanted: BufferedEvent => Boolean): Unit = events = events.filter(wanted)

  /** The number of events before a time, which is also the index of the first event at or after it. */
  def countBefore(time: Long): Int = {
    var low = 0
    var high = events.length
    while (low < high) {
      val middle = (low + high) >>> 1
      if (events(middle).time < time) low = middle + 1 else high = middle
    }
    low
  }
}

/** The join's state of one key, and its encoding as bytes. The encoding is kept in checkpoints: never change it.
  *
  * Encoding: the time in milliseconds of the key's only timer (0 for none); the number of left events; then the left
  * and the right events, each as time, topic, partition, offset, matched, length of the payload, payload.
  */
final class JoinState(var timerMs: Long, val lefts: BufferedEvents, val rights: BufferedEvents) {
  def isEmpty: Boolean = lefts.isEmpty && rights.isEmpty

  def toBytes: Array[Byte] = {
    var size = 8 + 4
    lefts.iterator.foreach(event => size += JoinState.sizeOf(event))
    rights.iterator.foreach(event => size += JoinState.sizeOf(event))
    val out = ByteBuffer.allocate(size)
    out.putLong(timerMs).putInt(lefts.size)
    lefts.iterator.foreach(JoinState.write(out, _))
    rights.iterator.foreach(JoinState.write(out, _))
    out.array
  }
}

object JoinState {
  private val EventBytes = 8 + 1 + 4 + 8 + 1 + 4

  def empty: JoinState = new JoinState(0, new BufferedEvents(Array.empty), new BufferedEvents(Array.empty))

  def fromBytes(bytes: Array[Byte]): JoinState = {
    val in = ByteBuffer.wrap(bytes)
    val timerMs = in.getLong
    val lefts = Array.fill(in.getInt)(read(in))
    val rights = new ArrayBuffer[BufferedEvent](1)
    while (in.hasRemaining) rights += read(in)
    new JoinState(timerMs, new BufferedEvents(lefts), new BufferedEvents(rights.toArray))
  }

  private def sizeOf(event: BufferedEvent): Int = EventBytes + event.payload.length

  private def write(out: ByteBuffer, e: BufferedEvent): Unit = {
    out.putLong(e.time).put(e.topic.toByte).putInt(e.partition).putLong(e.offset)
    out.put((if (e.matched) 1 else 0).toByte).putInt(e.payload.length).put(e.payload)
  }

  private def read(in: ByteBuffer): BufferedEvent = {
    val time = in.getLong
    val topic = in.get.toInt
    val partition = in.getInt
    val offset = in.getLong
    val matched = in.get == 1
    val payload = new Array[Byte](in.getInt)
    in.get(payload)
    new BufferedEvent(time, topic, partition, offset, payload, matched)
  }
}
