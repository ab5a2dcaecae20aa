package glassflow

import java.io.ByteArrayOutputStream
import java.util.Arrays

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.{Encoder, Encoders}
import org.apache.spark.sql.streaming.{MapState, StatefulProcessorHandle, TTLConfig, ValueState}

/** Keys that end at one moment or before it, in milliseconds since 1970: each as its length, in a byte, and its bytes.
  */
case class Pack(until: Long, keys: Array[Byte])

/** Packs first to next - 1 are there, and the first of them ends at `due`. */
case class Queue(first: Long, next: Long, due: Long)

/** The known keys of one source, those of the shard that is at hand, and until when each is known.
  *
  * Spark's own state with a time to live has every key in an index of ends, too, and looks each up before it writes it.
  * Here keys that come in one batch, which end together, are in one pack, and the packs in a queue. So a new key costs
  * one look and one write. The names are kept in checkpoints.
  */
class KnownKeys(handle: StatefulProcessorHandle, source: Int) {
  import KnownKeys._

  private val ends: MapState[Array[Byte], Long] =
    handle.getMapState(s"ends$source", Encoders.BINARY, Encoders.scalaLong, TTLConfig.NONE)
  private val packs: MapState[Long, Pack] =
    handle.getMapState(s"packs$source", Encoders.scalaLong, Encoders.product[Pack], TTLConfig.NONE)
  private val queue: ValueState[Queue] = handle.getValueState(s"queue$source", Encoders.product[Queue], TTLConfig.NONE)

  /** Until when a key is known, in milliseconds since 1970; 0 of one that is not. */
  def until(key: Array[Byte]): Long = ends.getValue(key)

  /** Know keys until a moment. */
  def add(keys: ArrayBuffer[Array[Byte]], until: Long): Unit = {
    keys.foreach(key => ends.updateValue(key, until))
    keys.grouped(MOST_IN_PACK).foreach(some => enqueue(Pack(until, packed(some))))
  }

  /** Know each of these keys until its end, and forget them together, at the last one's. */
  def addPack(keys: ArrayBuffer[KnownKey]): Unit = {
    keys.foreach(known => ends.updateValue(known.key, known.until))
    enqueue(Pack(keys.map(_.until).max, packed(keys.map(_.key))))
  }

  /** Forget what has ended by now: about so many keys, or all when there are fewer. What ended and is still there does
    * no harm, and a batch after a long pause has no more to do than others.
    */
  def forget(now: Long, atMost: Long): Unit = {
    val waiting = waitingPacks
    if (waiting.first < waiting.next && waiting.due <= now) {
      var first = waiting.first
      var pack = packs.getValue(first)
      var count = 0L
      while (pack != null && pack.until <= now && count < atMost) {
        count += forgetKeys(unpacked(pack.keys), now)
        packs.removeKey(first)
        first += 1
        // Null behind the last one.
        pack = packs.getValue(first)
      }
      queue.update(Queue(first, waiting.next, due = if (pack == null) 0 else pack.until))
    }
  }

  /** How many packs there are. */
  def packCount: Long = {
    val waiting = waitingPacks
    waiting.next - waiting.first
  }

  /** The keys of all packs: all that are known, and some that are not any more. */
  def allKeys: Iterator[Array[Byte]] = {
    val waiting = waitingPacks
    (waiting.first until waiting.next).iterator.flatMap(number => unpacked(packs.getValue(number).keys))
  }

  private def forgetKeys(keys: Array[Array[Byte]], now: Long): Int = {
    // One that has come again since has another end, and is in another pack.
    keys.foreach(key => if (ends.getValue(key) <= now) ends.removeKey(key))
    keys.length
  }

  private def enqueue(pack: Pack): Unit = {
    val waiting = waitingPacks
    packs.updateValue(waiting.next, pack)
    val due = if (waiting.first == waiting.next) pack.until else waiting.due
    queue.update(Queue(waiting.first, waiting.next + 1, due))
  }

  private def waitingPacks: Queue = Option(queue.get()).getOrElse(Queue(0, 0, 0))
}

object KnownKeys {

  /** A pack is written and read as a whole: some 70 kB at most. */
  val MOST_IN_PACK = 4096

  private def packed(keys: ArrayBuffer[Array[Byte]]): Array[Byte] = {
    val out = new ByteArrayOutputStream(keys.length * 18)
    keys.foreach { key =>
      out.write(key.length)
      out.write(key, 0, key.length)
    }
    out.toByteArray
  }

  private def unpacked(bytes: Array[Byte]): Array[Array[Byte]] = {
    val keys = Array.newBuilder[Array[Byte]]
    var at = 0
    while (at < bytes.length) {
      val end = at + 1 + bytes(at)
      keys += Arrays.copyOfRange(bytes, at + 1, end)
      at = end
    }
    keys.result()
  }
}
