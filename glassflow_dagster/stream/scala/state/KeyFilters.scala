package glassflow

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.streaming.StatefulProcessorHandle

/** A set, in memory, of the known keys of one source and shard. It answers for most new keys that they are not known,
  * without a lookup in the state: most keys of a stream are new, and in RocksDB each lookup that finds nothing costs an
  * exception.
  *
  * It is built from the packs of known keys (see KnownKeys), and rebuilt when it is full; until then it also has keys
  * that have expired since.
  *
  * Its hashes are those of `KeySet.hash`. growth: the size of a set that is rebuilt, in bytes for each key.
  */
final class KeyFilter(growth: Double) {
  private var keys = new KeySet(0)
  private var room = 0L

  /** Make room for `coming` more keys; rebuild the set where it is full, or too large.
    *
    * mostBytes: its largest size. With more known keys it takes more and more new keys for known ones, which are then
    * looked up.
    */
  def makeRoom(coming: Int, known: KnownKeys, mostBytes: Long): Unit =
    if (room < coming || keys.size > mostBytes) renew(coming, known, mostBytes)

  /** Whether the key with this hash (`KeySet.hash`) may be known, so that the state has to be read. */
  def mayKnow(hash: Long): Boolean = keys.mayHave(hash)

  def add(hash: Long): Unit = {
    keys.add(hash)
    room -= 1
  }

  private def renew(coming: Int, known: KnownKeys, mostBytes: Long): Unit = {
    // Once, as the number of keys is not known before, and the packs may not fit into memory.
    val hashes = known.allKeys.map(KeySet.hash).toArray
    val wanted = math.max(KeyFilter.LEAST_BYTES, (growth * (hashes.length + coming)).toLong)
    val bytes = math.min(wanted, mostBytes)
    keys.free()
    keys = new KeySet(bytes)
    hashes.foreach(keys.add)
    // Of a set that cannot grow, half as many keys again: each time it is rebuilt, all packs are read.
    room = math.max(bytes - hashes.length, math.max(coming, hashes.length / 2))
  }
}

private object KeyFilter {
  val LEAST_BYTES = 4096L

  /** The growth of a shard's set, between two and three: sets that all grew by the same factor would all be rebuilt in
    * the same batch.
    */
  def growth(shard: Int): Double = 2 + Math.floorMod(shard * 0x9e3779b9, 1024) / 1024.0
}

/** The filters of one partition of the state, in a run of the query; `last` is the last batch that they include.
  * mostBytes: the largest size of each, which is less when more queries have filters.
  */
final class KeyFilters(val run: UUID, var mostBytes: Long) {
  private val filters = mutable.HashMap.empty[(Int, Int), KeyFilter]
  private[glassflow] var last = -1L

  def of(source: Int, shard: Int): KeyFilter =
    filters.getOrElseUpdate((source, shard), new KeyFilter(KeyFilter.growth(shard)))
}

/** Keeps a partition's filters in this process from one batch to the next.
  *
  * Filters miss the keys that other processes, or earlier runs, have added to the state. So they are only valid if they
  * include the batch right before, of the same run.
  */
object KeyFilters {
  // The memory outside of Java's heap that the filters of all queries may take, as a share of its largest size: with a
  // heap of 1 GB, for a hundred million keys.
  private val SHARE = 1.0 / 4
  // By the query and the partition of its state.
  private val kept = new ConcurrentHashMap[(UUID, Int), KeyFilters]
  private val queries = ConcurrentHashMap.newKeySet[UUID]

  /** Return this task's filters, and keep them for the next batch when the task succeeds. */
  def ofTask(handle: StatefulProcessorHandle, sources: Int): KeyFilters = Option(TaskContext.get()) match {
    // No task: the driver, where Spark only collects the names of the states.
    case None => new KeyFilters(null, 0)
    case Some(task) =>
      val (query, run) = (handle.getQueryInfo().getQueryId, handle.getQueryInfo().getRunId)
      // Not that of the handle, which may be one for many batches.
      val batch = task.getLocalProperty(MicroBatchExecution.BATCH_ID_KEY).toLong
      val mostBytes = (Runtime.getRuntime.maxMemory * SHARE).toLong
      queries.add(query)
      val filters = Shards.PER_PARTITION * task.numPartitions() * sources * queries.size
      val mine = take(query, task.partitionId(), run, batch, math.max(KeyFilter.LEAST_BYTES, mostBytes / filters))
      task.addTaskCompletionListener[Unit] { task =>
        if (!task.isFailed() && !task.isInterrupted()) keep(query, task.partitionId(), batch, mine)
      }
      mine
  }

  /** Return the filters that were kept if they are valid for this batch, else new ones. Kept filters are removed here,
    * so only one attempt of a task gets them: a second one builds new filters, and a failed one leaves none.
    */
  def take(query: UUID, partition: Int, run: UUID, batch: Long, mostBytes: Long): KeyFilters = {
    val filters = Option(kept.remove((query, partition))).filter(it => it.run == run && it.last == batch - 1)
      .getOrElse(new KeyFilters(run, mostBytes))
    filters.mostBytes = mostBytes
    filters
  }

  /** Keep filters that include `batch` for the next one. */
  def keep(query: UUID, partition: Int, batch: Long, filters: KeyFilters): Unit = {
    filters.last = batch
    kept.put((query, partition), filters)
  }

  /** Drop the filters of a query that has ended. */
  def forget(query: UUID): Unit = {
    queries.remove(query)
    kept.keySet.removeIf { case (owner, _) => owner == query }
  }
}
