package glassflow

import java.nio.ByteBuffer

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.hash.Murmur3_x86_32.{hashInt, hashUnsafeBytes}

/** Divides the keys of a state into shards, so that a stateful processor's groups are shards of many keys, not single
  * keys. Then Spark sorts a batch by an integer and has few groups, and the queue of packs (see KnownKeys) is written
  * once per shard and batch.
  *
  * partitions: of the state. The numbers of the shards are chosen so that Spark's partitioning (Murmur3 with seed 42,
  * modulo the number of partitions) gives each partition the same number of shards. The shard of a key is kept in
  * checkpoints: never change it.
  */
class Shards(partitions: Int) extends Serializable {
  private val numbers: Array[Int] = {
    // For each partition the first numbers that belong to it. In one pass: with hundreds of partitions, one pass for
    // each would take longer than a small batch.
    val found = Array.ofDim[Int](partitions, Shards.PER_PARTITION)
    val counts = new Array[Int](partitions)
    var (number, missing) = (0, partitions * Shards.PER_PARTITION)
    while (missing > 0) {
      val partition = partitionOf(number)
      if (counts(partition) < Shards.PER_PARTITION) {
        found(partition)(counts(partition)) = number
        counts(partition) += 1
        missing -= 1
      }
      number += 1
    }
    found.flatten
  }

  /** The shard of an encoded key (see KeyBytes). Records without a key, which pass the processor one by one, get a
    * negative number, by their Kafka partition.
    */
  def of(key: Array[Byte]): Int =
    if (key(0) == KeyBytes.REFUSED) -1 - ByteBuffer.wrap(key).getInt(1)
    else
      numbers(Math.floorMod(hashUnsafeBytes(key, Platform.BYTE_ARRAY_OFFSET, key.length, Shards.SEED), numbers.length))

  private def partitionOf(number: Int): Int = Math.floorMod(hashInt(number, Shards.SEED), partitions)
}

object Shards {
  // With fewer shards, a shard's events of a batch take more memory at once; with more, a batch of some hundred events
  // has hardly more than one event per shard.
  val PER_PARTITION = 16
  private val SEED = 42
}
