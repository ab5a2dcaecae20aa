package glassflow

import java.util.{Arrays, LinkedHashMap}

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{Dataset, Encoder, Encoders, Row}
import org.apache.spark.sql.streaming._

/** A record on its way through deduplication: its key, its source's number, its place in Kafka, and the rest, packed. A
  * refused record passes and leaves no trace in the state; its key says so (KeyBytes.ofRefused).
  */
case class Event(key: Array[Byte], source: Int, topic: Int, partition: Int, offset: Long, payload: Array[Byte])
    extends RecordPosition

/** What became of the records of one key in one batch.
  *
  * payload: the record that goes on, null when the key was known; duplicates: how many others were dropped.
  */
case class Verdict(topic: Int, partition: Int, offset: Long, payload: Array[Byte], duplicates: Long)

/** A key that a source's events had, and the millisecond since 1970 from which it is not known any more. */
case class KnownKey(key: Array[Byte], source: Int, until: Long)

/** Lets the first event of a key pass and drops the others until the window has gone by.
  *
  * The clock is the batch's own time, which Spark logs with the batch: a replay decides the same. A key first seen at
  * b0 is known while b - b0 < window; duplicates do not prolong it. Among the events of one batch the least (topic,
  * partition, offset) is the first. Each source has keys and a window of its own; one without a window has no events
  * here that are not refused.
  *
  * A group is a shard of the keys (see Shards): its events of a batch are in memory together, one of each key.
  */
class ProcessingTimeDedup(windowsMs: Array[Long]) extends StatefulProcessor[Int, Event, Verdict] {
  @transient private var known: Array[KnownKeys] = _
  @transient private var filters: KeyFilters = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    known = ProcessingTimeDedup.states(getHandle, windowsMs)
    filters = KeyFilters.ofTask(getHandle, known.length)
  }

  override def handleInputRows(shard: Int, rows: Iterator[Event], timers: TimerValues): Iterator[Verdict] =
    if (shard < 0) rows.map(event => ProcessingTimeDedup.goesOn(event, 0))
    else {
      val now = timers.getCurrentProcessingTimeInMs()
      val candidates = Array.fill(known.length)(new LinkedHashMap[BatchKey, Candidate])
      rows.foreach { event =>
        val key = new BatchKey(event.key)
        val found = candidates(event.source).get(key)
        if (found == null) candidates(event.source).put(key, new Candidate(event)) else found.meet(event)
      }
      // At once: the state belongs to this shard until this method returns.
      val verdicts = new ArrayBuffer[Verdict](candidates.map(_.size).sum)
      known.indices.foreach(source =>
        if (known(source) != null) judge(source, shard, now, candidates(source), verdicts)
      )
      verdicts.iterator
    }

  private def judge(
      source: Int,
      shard: Int,
      now: Long,
      candidates: LinkedHashMap[BatchKey, Candidate],
      verdicts: ArrayBuffer[Verdict]
  ): Unit = {
    val filter = filters.of(source, shard)
    filter.makeRoom(candidates.size, known(source))
    val fresh = new ArrayBuffer[Array[Byte]](candidates.size)
    candidates.forEach { (key, candidate) =>
      val first = candidate.first
      if (filter.mayKnow(key.bytes) && known(source).until(key.bytes) > now)
        verdicts += Verdict(first.topic, first.partition, first.offset, null, candidate.count)
      else {
        fresh += key.bytes
        filter.add(key.bytes)
        verdicts += ProcessingTimeDedup.goesOn(first, candidate.count - 1)
      }
    }
    // First, so that what has ended is not looked for among what comes now.
    known(source).forget(now, atMost = ProcessingTimeDedup.FORGOTTEN_AT_LEAST + 2L * candidates.size)
    known(source).add(fresh, now + windowsMs(source))
  }
}

/** A key among those of a batch, to find it by. Comparable, as a table of keys that were made to fall together is then
  * a tree.
  */
private final class BatchKey(val bytes: Array[Byte]) extends Comparable[BatchKey] {
  override val hashCode: Int = Arrays.hashCode(bytes)
  override def equals(other: Any): Boolean = other match {
    case key: BatchKey => Arrays.equals(bytes, key.bytes)
    case _ => false
  }
  override def compareTo(other: BatchKey): Int = Arrays.compare(bytes, other.bytes)
}

/** The first of the events of a key in a batch, as far as they have been looked at, and how many these are. */
private final class Candidate(var first: Event) {
  var count = 1L

  def meet(other: Event): Unit = {
    if (other.precedes(first)) first = other
    count += 1
  }
}

/** Puts keys into the state of `ProcessingTimeDedup` as if it had seen them. */
class PutKnownKeys(windowsMs: Array[Long]) extends StatefulProcessor[Int, KnownKey, Verdict] {
  @transient private var known: Array[KnownKeys] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    known = ProcessingTimeDedup.states(getHandle, windowsMs)

  override def handleInputRows(shard: Int, rows: Iterator[KnownKey], timers: TimerValues): Iterator[Verdict] = {
    // Keys of one pack are forgotten together: those that end at about one time, a hundredth of their window.
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
  // Keys that a source and shard forgets in a batch, at least: as many as some batches of few events bring.
  private val FORGOTTEN_AT_LEAST = 256L

  def states(handle: StatefulProcessorHandle, windowsMs: Array[Long]): Array[KnownKeys] =
    windowsMs.zipWithIndex.map { case (windowMs, source) => if (windowMs == 0) null else new KnownKeys(handle, source) }

  private def goesOn(e: Event, duplicates: Long): Verdict =
    Verdict(e.topic, e.partition, e.offset, e.payload, duplicates)

  private implicit val verdict: Encoder[Verdict] = Encoders.product[Verdict]

  /** Called from Python. Columns in: those of Event; out: those of Verdict. windowsMs: of each source, 0 for one whose
    * events are not deduplicated.
    */
  def apply(events: Dataset[Row], windowsMs: java.util.List[Number]): Dataset[Row] = {
    implicit val event: Encoder[Event] = Encoders.product[Event]
    Keyed.byShard(events, new ProcessingTimeDedup(inMs(windowsMs)), TimeMode.ProcessingTime())
  }

  /** Called from Python, to make the state of a checkpoint: the stream has no rows, but a state that `apply` goes on
    * with. Columns in: those of KnownKey.
    */
  def putKnown(keys: Dataset[Row], windowsMs: java.util.List[Number]): Dataset[Row] = {
    implicit val known: Encoder[KnownKey] = Encoders.product[KnownKey]
    Keyed.byShard(keys, new PutKnownKeys(inMs(windowsMs)), TimeMode.ProcessingTime())
  }

  private def inMs(windows: java.util.List[Number]): Array[Long] = windows.asScala.map(_.longValue).toArray
}
