package glassflow

import java.io.ByteArrayOutputStream
import java.util.Arrays

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.{Encoder, Encoders}
import org.apache.spark.sql.streaming.{MapState, StatefulProcessorHandle, TTLConfig, ValueState}

/** A pack of known keys, all of which have expired at `until`, in milliseconds since 1970. Each key is its length, one
  * byte, and its bytes.
  */
case class Pack(until: Long, keys: Array[Byte])

/** The queue of packs: those numbered first to next - 1 exist, and the first one expires at `due`. */
case class Queue(first: Long, next: Long, due: Long)

/** The state of deduplication on the processing clock: the known keys of one source in the current shard, and until
  * when each is known.
  *
  * Spark's own state with a time to live keeps a second index of all keys by expiry, and looks each key up before it
  * writes it. Here the keys of one batch, which expire together, are in one pack, and the packs in a queue. So a new
  * key costs one lookup and one write. The names of the states are kept in checkpoints.
  */
class KnownKeys(handle: StatefulProcessorHandle, source: Int) {
  import KnownKeys._

  private val ends: MapState[Array[Byte], Long] =
    handle.getMapState(s"ends$source", Encoders.BINARY, Encoders.scalaLong, TTLConfig.NONE)
  private val packs: MapState[Long, Pack] =
    handle.getMapState(s"packs$source", Encoders.scalaLong, RecordEncoder.of[Pack], TTLConfig.NONE)
  private val queue: ValueState[Queue] = handle.getValueState(s"queue$source", RecordEncoder.of[Queue], TTLConfig.NONE)

  /** Return until when a key is known, in milliseconds since 1970; 0 for an unknown key. */
  def until(key: Array[Byte]): Long = ends.getValue(key)

  /** Add keys that are known until a time. */
  def add(keys: ArrayBuffer[Array[Byte]], until: Long): Unit = {
    keys.foreach(key => ends.updateValue(key, until))
    keys.grouped(MOST_IN_PACK).foreach(some => enqueue(Pack(until, packed(some))))
  }

  /** Add keys with different expiry times as one pack, which is forgotten when the last of them has expired. */
  def addPack(keys: ArrayBuffer[KnownKey]): Unit = {
    keys.foreach(known => ends.updateValue(known.key, known.until))
    enqueue(Pack(keys.map(_.until).max, packed(keys.map(_.key))))
  }

  /** Remove expired keys, about `atMost`, so that a batch after a long pause has no more to do than others. Expired
    * keys that stay do no harm, as `until` tells that they have expired.
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
        // Null after the last one.
        pack = packs.getValue(first)
      }
      queue.update(Queue(first, waiting.next, due = if (pack == null) 0 else pack.until))
    }
  }

  /** The number of packs. */
  def packCount: Long = {
    val waiting = waitingPacks
    waiting.next - waiting.first
  }

  /** The keys of all packs: all known keys, and some that have expired. */
  def allKeys: Iterator[Array[Byte]] = {
    val waiting = waitingPacks
    (waiting.first until waiting.next).iterator.flatMap(number => unpacked(packs.getValue(number).keys))
  }

  private def forgetKeys(keys: Array[Array[Byte]], now: Long): Int = {
    // A key that was added again since has a later expiry, and is in a later pack, too.
    keys.foreach(key => if (ends.getValue(key) <= now) ends.removeKey(key))
    keys.length
  }

  private def enqueue(pack: Pack): Unit = {
    val waiting = waitingPacks
    val last = if (isSmall(pack) && waiting.first < waiting.next) packs.getValue(waiting.next - 1) else null
    // Batches of few events would otherwise make packs of one key, which take more space and time than the keys. A key
    // of a pack that was filled over a long time is kept longer than it has to be; no more than the keys of one pack.
    val (number, filled) =
      if (last != null && isSmall(last)) (waiting.next - 1, together(last, pack)) else (waiting.next, pack)
    packs.updateValue(number, filled)
    val due = if (waiting.first == number) filled.until else waiting.due
    queue.update(Queue(waiting.first, number + 1, due))
  }

  private def waitingPacks: Queue = Option(queue.get()).getOrElse(Queue(0, 0, 0))
}

object KnownKeys {

  /** The most keys of a pack, which is written and read as a whole: some 70 kB. */
  val MOST_IN_PACK = 4096

  // Bytes, of some 60 keys. Each batch that adds a few keys to a small pack writes all of it again.
  private val SMALL_PACK = 1024

  private def isSmall(pack: Pack): Boolean = pack.keys.length < SMALL_PACK

  private def together(some: Pack, more: Pack): Pack =
    Pack(math.max(some.until, more.until), some.keys ++ more.keys)

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
