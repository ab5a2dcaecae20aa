package glassflow

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.streaming.StatefulProcessorHandle
import org.apache.spark.util.sketch.BloomFilter

/** A Bloom filter, in memory, over the known keys of one source and shard. It answers for most new keys that they are
  * not known, without a lookup in the state: most keys of a stream are new, and in RocksDB each lookup that finds
  * nothing costs an exception.
  *
  * It is built from the packs of known keys (see KnownKeys), and rebuilt when it is full; until then it also has keys
  * that have expired since.
  *
  * mostKeys: the most keys that it may hold; with more there is no filter, and each key is looked up in the state.
  */
final class KeyFilter(mostKeys: Long) {
  private var filter: BloomFilter = _
  private var room = 0L

  /** Make room for `coming` more keys; rebuild the filter where it is full. */
  def makeRoom(coming: Int, known: KnownKeys): Unit = if (room < coming) renew(coming, known)

  /** Whether the key may be known, so that the state has to be read. */
  def mayKnow(key: Array[Byte]): Boolean = filter == null || filter.mightContainBinary(key)

  def add(key: Array[Byte]): Unit = if (filter != null) {
    filter.putBinary(key)
    room -= 1
  }

  private def renew(coming: Int, known: KnownKeys): Unit = {
    // The packs are read twice, to count the keys and to add them, as they may not fit into memory.
    val capacity =
      if (known.packCount > KeyFilter.MOST_PACKS) Long.MaxValue
      else math.max(KeyFilter.LEAST_KEYS, 2L * (known.allKeys.size + coming))
    if (capacity <= mostKeys) {
      filter = BloomFilter.create(capacity, KeyFilter.FALSE_ALARMS)
      room = capacity
      known.allKeys.foreach(add)
    } else {
      // No filter for the rest of the run: to check whether one fits again, each batch would have to read the packs.
      filter = null
      room = Long.MaxValue
    }
  }
}

private object KeyFilter {
  // The rate of false positives, each of which costs a lookup in the state. With 0.1 a key takes 5 bits, with 0.01 ten.
  val FALSE_ALARMS = 0.05
  // The memory of a key at this rate, rounded up.
  val BYTES_A_KEY = 0.8
  val LEAST_KEYS = 4096L
  // The most packs of a source and shard to build a filter from: reading as many takes some 10 ms. Batches of few
  // events make packs of few keys.
  val MOST_PACKS = 1024L
}

/** The filters of one partition of the state, in a run of the query; `last` is the last batch that they include. */
final class KeyFilters(val run: UUID, mostKeys: Long) {
  private val filters = mutable.HashMap.empty[(Int, Int), KeyFilter]
  private[glassflow] var last = -1L

  def of(source: Int, shard: Int): KeyFilter = filters.getOrElseUpdate((source, shard), new KeyFilter(mostKeys))
}

/** Keeps a partition's filters in this process from one batch to the next.
  *
  * Filters miss the keys that other processes, or earlier runs, have added to the state. So they are only valid if they
  * include the batch right before, of the same run.
  */
object KeyFilters {
  // The share of Java's maximal memory that all filters may take.
  private val SHARE = 1.0 / 16
  private val kept = new ConcurrentHashMap[Int, KeyFilters]

  /** Return this task's filters, and keep them for the next batch when the task succeeds. */
  def ofTask(handle: StatefulProcessorHandle, sources: Int): KeyFilters = Option(TaskContext.get()) match {
    // No task: the driver, where Spark only collects the names of the states.
    case None => new KeyFilters(null, 0)
    case Some(task) =>
      val run = handle.getQueryInfo().getRunId
      // Not that of the handle, which may be one for many batches.
      val batch = task.getLocalProperty(MicroBatchExecution.BATCH_ID_KEY).toLong
      val mostKeys = Runtime.getRuntime.maxMemory * SHARE / KeyFilter.BYTES_A_KEY
      val filters = Shards.PER_PARTITION * task.numPartitions() * sources
      val mine = take(task.partitionId(), run, batch, (mostKeys / filters).toLong)
      task.addTaskCompletionListener[Unit] { task =>
        if (!task.isFailed() && !task.isInterrupted()) keep(task.partitionId(), batch, mine)
      }
      mine
  }

  /** Return the filters that were kept if they are valid for this batch, else new ones. Kept filters are removed here,
    * so only one attempt of a task gets them: a second one builds new filters, and a failed one leaves none.
    */
  def take(partition: Int, run: UUID, batch: Long, mostKeys: Long): KeyFilters =
    Option(kept.remove(partition)).filter(it => it.run == run && it.last == batch - 1).getOrElse(new KeyFilters(
      run,
      mostKeys
    ))

  /** Keep filters that include `batch` for the next one. */
  def keep(partition: Int, batch: Long, filters: KeyFilters): Unit = {
    filters.last = batch
    kept.put(partition, filters)
  }
}
