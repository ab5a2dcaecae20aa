package glassflow

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.sql.streaming.StatefulProcessorHandle
import org.apache.spark.util.sketch.BloomFilter

/** Says of most keys that are not known that they are not, without asking the state: most keys of a stream are new, and
  * RocksDB throws an exception for each that it does not find.
  *
  * A Bloom filter over the keys of one source and shard, in memory. It is made of the packs, which have all known keys,
  * and again when it is full; until then it has keys, too, that are forgotten by now.
  */
final class KeyFilter(mostKeys: Long) {
  private var filter: BloomFilter = _
  private var room = 0L

  /** Make room for so many keys more. */
  def makeRoom(coming: Int, known: KnownKeys): Unit = if (room < coming) renew(coming, known)

  /** Whether the state has to be asked. */
  def mayKnow(key: Array[Byte]): Boolean = filter == null || filter.mightContainBinary(key)

  def add(key: Array[Byte]): Unit = if (filter != null) {
    filter.putBinary(key)
    room -= 1
  }

  private def renew(coming: Int, known: KnownKeys): Unit = {
    // Read twice, as there may be more than the memory holds.
    val capacity =
      if (known.packCount > KeyFilter.MOST_PACKS) Long.MaxValue
      else math.max(KeyFilter.LEAST_KEYS, 2L * (known.allKeys.size + coming))
    if (capacity <= mostKeys) {
      filter = BloomFilter.create(capacity, KeyFilter.FALSE_ALARMS)
      room = capacity
      known.allKeys.foreach(add)
    } else {
      // For the rest of the run, as each batch would have to read the packs to find out whether it can be one again.
      filter = null
      room = Long.MaxValue
    }
  }
}

private object KeyFilter {
  // A false alarm costs a look at the state. At a tenth of them a key would take 5 bits, at a hundredth 10.
  val FALSE_ALARMS = 0.05
  // What a key takes at that, and a little more.
  val BYTES_A_KEY = 0.8
  val LEAST_KEYS = 4096L
  // Of one source and shard; reading as many takes some 10 ms. Batches of few events make packs of few keys.
  val MOST_PACKS = 1024L
}

/** The filters of one partition of the state, as they are behind the batch `last` of a run of the query. */
final class KeyFilters(val run: UUID, mostKeys: Long) {
  private val filters = mutable.HashMap.empty[(Int, Int), KeyFilter]
  private[glassflow] var last = -1L

  def of(source: Int, shard: Int): KeyFilter = filters.getOrElseUpdate((source, shard), new KeyFilter(mostKeys))
}

/** Keeps a partition's filters in this process from one batch to the next.
  *
  * They miss what other processes have added, and a driver of an earlier run. So only those are good that have seen the
  * batch right before, in the same run.
  */
object KeyFilters {
  // Of the memory that Java may use, for all filters.
  private val SHARE = 1.0 / 16
  private val kept = new ConcurrentHashMap[Int, KeyFilters]

  /** Give the filters of the task that is at work, and keep them when it is done. */
  def ofTask(handle: StatefulProcessorHandle, sources: Int): KeyFilters = Option(TaskContext.get()) match {
    // The driver, where Spark only asks which states there are.
    case None => new KeyFilters(null, 0)
    case Some(task) =>
      val query = handle.getQueryInfo()
      val mostKeys = Runtime.getRuntime.maxMemory * SHARE / KeyFilter.BYTES_A_KEY
      val filters = Shards.PER_PARTITION * task.numPartitions() * sources
      val mine = take(task.partitionId(), query.getRunId, query.getBatchId, (mostKeys / filters).toLong)
      task.addTaskCompletionListener[Unit] { task =>
        if (!task.isFailed() && !task.isInterrupted()) keep(task.partitionId(), query.getBatchId, mine)
      }
      mine
  }

  /** Those that are kept, if they are good for this batch, or new ones. Whoever takes them has them alone: of two
    * attempts of one task, the second makes its own, and one that fails leaves none.
    */
  def take(partition: Int, run: UUID, batch: Long, mostKeys: Long): KeyFilters =
    Option(kept.remove(partition)).filter(it => it.run == run && it.last == batch - 1).getOrElse(new KeyFilters(
      run,
      mostKeys
    ))

  def keep(partition: Int, batch: Long, filters: KeyFilters): Unit = {
    filters.last = batch
    kept.put(partition, filters)
  }
}
