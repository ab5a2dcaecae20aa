package glassflow

import java.util.{Arrays, LinkedHashMap}

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{Dataset, Encoder, Row}
import org.apache.spark.sql.streaming._

/** The input of deduplication on the processing clock: a record with its key, its source's index, its position in
  * Kafka, and its other columns, packed. A record without a key (KeyBytes.ofRefused: a dead letter, a dropped or exempt
  * record) passes without a change of the state.
  */
case class Event(key: Array[Byte], source: Int, topic: Int, partition: Int, offset: Long, payload: Array[Byte])
    extends RecordPosition

/** The output of deduplication on the processing clock: the result for the records of one key in one batch.
  *
  * payload: the record that passes, null when the key was known; duplicates: how many other records were dropped.
  */
case class DedupResult(topic: Int, partition: Int, offset: Long, payload: Array[Byte], duplicates: Long)

/** A key of a source's events, known until a time in milliseconds since 1970: the input to rebuild a state. */
case class KnownKey(key: Array[Byte], source: Int, until: Long)

/** Passes the first event of a key, and drops later ones until the window has passed.
  *
  * The clock is the batch's time, which Spark logs with the batch: a replay decides the same. A key first seen at b0 is
  * known while b - b0 < window; duplicates do not extend that. The first event of a batch is the one with the least
  * (topic, partition, offset). Each source has its own keys and window; the events of a source without a window all
  * come without a key.
  *
  * A group is a shard of the keys (see Shards): one event of each key of a shard's events in a batch is in memory.
  */
class ProcessingTimeDedup(windowsMs: Array[Long]) extends StatefulProcessor[Int, Event, DedupResult]
    with ForManyBatches {
  @transient private var known: Array[KnownKeys] = _
  @transient private var filters: KeyFilters = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    known = ProcessingTimeDedup.states(getHandle, windowsMs)
    beginBatch()
  }

  override def beginBatch(): Unit = filters = KeyFilters.ofTask(getHandle, known.length)

  override def handleInputRows(shard: Int, rows: Iterator[Event], timers: TimerValues): Iterator[DedupResult] =
    if (shard < 0) rows.map(event => ProcessingTimeDedup.resultOf(event, 0))
    else {
      val now = timers.getCurrentProcessingTimeInMs()
      val candidates = Array.fill(known.length)(new LinkedHashMap[BatchKey, Candidate])
      rows.foreach { event =>
        val key = new BatchKey(event.key)
        val found = candidates(event.source).get(key)
        if (found == null) candidates(event.source).put(key, new Candidate(event)) else found.add(event)
      }
      // Computed here, not lazily: Spark's state is that of this shard only until this method returns.
      val results = new ArrayBuffer[DedupResult](candidates.map(_.size).sum)
      known.indices.foreach(source =>
        if (known(source) != null) decide(source, shard, now, candidates(source), results)
      )
      results.iterator
    }

  /** Decide on the candidates of one source and shard, one of each key in the batch, and update the state. */
  private def decide(
      source: Int,
      shard: Int,
      now: Long,
      candidates: LinkedHashMap[BatchKey, Candidate],
      results: ArrayBuffer[DedupResult]
  ): Unit = {
    val filter = filters.of(source, shard)
    filter.makeRoom(candidates.size, known(source), filters.mostBytes)
    val newKeys = new ArrayBuffer[Array[Byte]](candidates.size)
    candidates.forEach { (key, candidate) =>
      val first = candidate.first
      val hash = KeySet.hash(key.bytes)
      if (filter.mayKnow(hash) && known(source).until(key.bytes) > now)
        results += DedupResult(first.topic, first.partition, first.offset, null, candidate.count)
      else {
        newKeys += key.bytes
        filter.add(hash)
        results += ProcessingTimeDedup.resultOf(first, candidate.count - 1)
      }
    }
    // Before the new keys are added, so that only older keys are checked for their expiry.
    known(source).forget(now, atMost = ProcessingTimeDedup.FORGOTTEN_AT_LEAST + 2L * candidates.size)
    known(source).add(newKeys, now + windowsMs(source))
  }
}

/** A key as a key of a hash map. Comparable, so that Java's map becomes a tree for keys that were constructed to have
  * the same hash code.
  */
private final class BatchKey(val bytes: Array[Byte]) extends Comparable[BatchKey] {
  override val hashCode: Int = Arrays.hashCode(bytes)
  override def equals(other: Any): Boolean = other match {
    case key: BatchKey => Arrays.equals(bytes, key.bytes)
    case _ => false
  }
  override def compareTo(other: BatchKey): Int = Arrays.compare(bytes, other.bytes)
}

/** The first event of a key in a batch among those read so far, and their number. */
private final class Candidate(var first: Event) {
  var count = 1L

  def add(other: Event): Unit = {
    if (other.precedes(first)) first = other
    count += 1
  }
}

/** Writes keys into the state of `ProcessingTimeDedup`, as if events with them had passed: rebuilds a lost state. */
class PutKnownKeys(windowsMs: Array[Long]) extends StatefulProcessor[Int, KnownKey, DedupResult] {
  @transient private var known: Array[KnownKeys] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    known = ProcessingTimeDedup.states(getHandle, windowsMs)

  override def handleInputRows(shard: Int, rows: Iterator[KnownKey], timers: TimerValues): Iterator[DedupResult] = {
    // A pack is removed as a whole, so its keys should expire at about the same time: within 1 % of the window.
    val gathered = mutable.TreeMap.empty[(Int, Long), ArrayBuffer[KnownKey]]
    rows.foreach { key =>
      val end = key.until / (1 + windowsMs(key.source) / 100)
      val together = gathered.getOrElseUpdate((key.source, end), new ArrayBuffer[KnownKey])
      together += key
      if (together.size == KnownKeys.MOST_IN_PACK) {
        known(key.source).addPack(together)
        together.clear()
      }
    }
    for (((source, _), together) <- gathered if together.nonEmpty) known(source).addPack(together)
    Iterator.empty
  }
}

object ProcessingTimeDedup {
  // The least number of expired keys that a source and shard may remove in a batch: more than a small batch adds.
  private val FORGOTTEN_AT_LEAST = 256L

  /** The states of all sources, by their index; null for a source without a window. */
  def states(handle: StatefulProcessorHandle, windowsMs: Array[Long]): Array[KnownKeys] =
    windowsMs.zipWithIndex.map { case (windowMs, source) => if (windowMs == 0) null else new KnownKeys(handle, source) }

  private def resultOf(e: Event, duplicates: Long): DedupResult =
    DedupResult(e.topic, e.partition, e.offset, e.payload, duplicates)

  private implicit val result: Encoder[DedupResult] = RecordEncoder.of[DedupResult]

  /** Called from Python. Columns in: those of Event; out: those of DedupResult. windowsMs: the window of each source, 0
    * for a source without deduplication.
    */
  def apply(events: Dataset[Row], windowsMs: java.util.List[Number]): Dataset[Row] = {
    implicit val event: Encoder[Event] = RecordEncoder.of[Event]
    Keyed.byShard(events, new ProcessingTimeDedup(inMs(windowsMs)), TimeMode.ProcessingTime())
  }

  /** Called from Python, to rebuild the state of a checkpoint: the stream returns no rows, but leaves a state that
    * `apply` can continue with. Columns in: those of KnownKey.
    */
  def putKnown(keys: Dataset[Row], windowsMs: java.util.List[Number]): Dataset[Row] = {
    implicit val known: Encoder[KnownKey] = RecordEncoder.of[KnownKey]
    Keyed.byShard(keys, new PutKnownKeys(inMs(windowsMs)), TimeMode.ProcessingTime())
  }

  private def inMs(windows: java.util.List[Number]): Array[Long] = windows.asScala.map(_.longValue).toArray
}
