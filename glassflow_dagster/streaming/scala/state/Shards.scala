package glassflow

import java.nio.ByteBuffer

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.hash.Murmur3_x86_32.{hashInt, hashUnsafeBytes}

/** The shards of the keys of a state with so many partitions: what a stateful processor calls a group is here all keys
  * of a shard, not one. So Spark sorts a batch by a number, has few groups to open and close, and what is kept beside
  * the keys is kept once a shard and batch.
  *
  * A shard's number is one that Spark sends to the wanted partition, by Murmur3 with 42 modulo their number: each
  * partition has as many shards as the others. Which key is in which shard is kept in checkpoints: never change it.
  */
class Shards(partitions: Int) extends Serializable {
  private val numbers: Array[Int] =
    (0 until partitions).flatMap(p => Iterator.from(0).filter(partitionOf(_) == p).take(Shards.PER_PARTITION)).toArray

  /** The shard of a key as KeyBytes makes it. What has no key passes its processor record by record, in a group of its
    * partition's in Kafka, which is negative.
    */
  def of(key: Array[Byte]): Int =
    if (key(0) == KeyBytes.REFUSED) -1 - ByteBuffer.wrap(key).getInt(1)
    else
      numbers(Math.floorMod(hashUnsafeBytes(key, Platform.BYTE_ARRAY_OFFSET, key.length, Shards.SEED), numbers.length))

  private def partitionOf(number: Int): Int = Math.floorMod(hashInt(number, Shards.SEED), partitions)
}

object Shards {
  // With few, the events that a shard has in a batch take much memory at once; with many, batches of some hundred
  // events
  // have little more than one a shard.
  val PER_PARTITION = 16
  private val SEED = 42
}
