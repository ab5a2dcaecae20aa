package glassflow

import java.nio.{ByteBuffer, ByteOrder}

import org.apache.spark.sql.catalyst.expressions.XXH64
import org.apache.spark.unsafe.Platform

import sun.misc.Unsafe

/** A set of keys in one byte of memory a key, outside of Java's heap, which may take other keys for its own.
  *
  * It is a Bloom filter whose bits of one key are all in one word, so that a lookup reads memory once. With as many
  * keys as bytes it takes 3 % of other keys for its own, with twice as many 17 %, with half as many 0.4 %.
  *
  * bytes: the size, in words of 8 bytes, and one word at least.
  */
final class KeySet(bytes: Long) {
  private val words = math.max(1, math.min(bytes / 8, KeySet.MOST_WORDS)).toInt
  private val buffer = ByteBuffer.allocateDirect(8 * words)
  private val memory = buffer.order(ByteOrder.nativeOrder).asLongBuffer

  /** The size in bytes. */
  def size: Long = 8L * words

  /** Give the memory back; the set must not be used any more. Java itself frees it with the next full collection only,
    * which may be hours later.
    */
  def free(): Unit = KeySet.unsafe.invokeCleaner(buffer)

  def mayHave(hash: Long): Boolean = {
    val bits = bitsOf(hash)
    (memory.get(wordOf(hash)) & bits) == bits
  }

  def add(hash: Long): Unit = {
    val word = wordOf(hash)
    memory.put(word, memory.get(word) | bitsOf(hash))
  }

  private def wordOf(hash: Long): Int = ((hash >>> 32) * words >>> 32).toInt

  // Four bits, by the part of the hash that `wordOf` does not use.
  private def bitsOf(hash: Long): Long = 1L << hash | 1L << (hash >>> 6) | 1L << (hash >>> 12) | 1L << (hash >>> 18)
}

object KeySet {
  // A buffer has at most 2 GB.
  private val MOST_WORDS = Int.MaxValue / 8L

  def hash(key: Array[Byte]): Long = XXH64.hashUnsafeBytes(key, Platform.BYTE_ARRAY_OFFSET, key.length, SEED)
  private val SEED = 42L

  private val unsafe = {
    val field = classOf[Unsafe].getDeclaredField("theUnsafe")
    field.setAccessible(true)
    field.get(null).asInstanceOf[Unsafe]
  }
}
