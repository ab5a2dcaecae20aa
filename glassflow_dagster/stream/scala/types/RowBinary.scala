package glassflow

import java.math.BigInteger
import java.nio.ByteOrder

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** Values in ClickHouse's format RowBinary, appended one after the other: numbers in little-endian order, texts and
  * lists after their length as a varint (LEB128), a byte before each value of a Nullable column.
  * https://clickhouse.com/docs/interfaces/formats/RowBinary
  */
final class RowBinary {
  import RowBinary._

  private var bytes = new Array[Byte](INITIAL_BYTES)
  private var end = 0

  def length: Int = end

  /** Forget what follows the first `length` bytes. */
  def truncate(length: Int): Unit = end = length

  def toArray: Array[Byte] = java.util.Arrays.copyOf(bytes, end)

  /** The byte before a value of a Nullable column. */
  def isNull(value: Boolean): Unit = int8(if (value) 1 else 0)

  def int8(value: Int): Unit = {
    reserve(1)
    bytes(end) = value.toByte
    end += 1
  }

  def int16(value: Int): Unit = {
    reserve(2)
    Platform.putShort(bytes, at(end), value.toShort)
    end += 2
  }

  def int32(value: Int): Unit = {
    reserve(4)
    Platform.putInt(bytes, at(end), value)
    end += 4
  }

  def int64(value: Long): Unit = {
    reserve(8)
    Platform.putLong(bytes, at(end), value)
    end += 8
  }

  /** A whole number of `size` bytes, in two's complement. */
  def integer(value: BigInteger, size: Int): Unit =
    if (size == 8) int64(value.longValue)
    else if (size == 4) int32(value.intValue)
    else {
      val big = value.toByteArray
      val fill = if (value.signum < 0) -1 else 0
      var i = 0
      // Java's array may have one byte more, for the sign.
      while (i < size) {
        int8(if (i < big.length) big(big.length - 1 - i) else fill)
        i += 1
      }
    }

  def text(value: UTF8String): Unit = {
    varint(value.numBytes)
    raw(value)
  }

  /** The bytes of a text without their length. */
  def raw(value: UTF8String): Unit = {
    val size = value.numBytes
    reserve(size)
    value.writeToMemory(bytes, at(end))
    end += size
  }

  def raw(value: Array[Byte], start: Int, size: Int): Unit = {
    reserve(size)
    System.arraycopy(value, start, bytes, end, size)
    end += size
  }

  def zeros(size: Int): Unit = {
    reserve(size)
    java.util.Arrays.fill(bytes, end, end + size, 0.toByte)
    end += size
  }

  def varint(value: Int): Unit = {
    var rest = value
    while (rest >= 0x80) {
      int8(rest & 0x7f | 0x80)
      rest >>>= 7
    }
    int8(rest)
  }

  /** Insert the number of a list's elements before them, as it is only known when they are written. */
  def insertVarint(start: Int, value: Int): Unit = {
    val before = end
    varint(value)
    val size = end - before
    val inserted = java.util.Arrays.copyOfRange(bytes, before, end)
    System.arraycopy(bytes, start, bytes, start + size, before - start)
    System.arraycopy(inserted, 0, bytes, start, size)
  }

  /** Put what follows `start` into the order of `parts`: (first byte, byte after the last); None: a NULL. */
  def reorder(start: Int, parts: Array[Option[(Int, Int)]]): Unit = {
    val written = java.util.Arrays.copyOfRange(bytes, start, end)
    end = start
    parts.foreach {
      case Some((from, until)) => raw(written, from - start, until - from)
      case None => isNull(true)
    }
  }

  private def reserve(size: Int): Unit =
    if (bytes.length - end < size) {
      // In 64 bits, as the sum may be beyond 32; then Java says that there cannot be such an array.
      val wanted = math.max(end.toLong + size, math.min(2L * bytes.length, GREATEST_BYTES))
      bytes = java.util.Arrays.copyOf(bytes, math.toIntExact(wanted))
    }
}

object RowBinary {
  // A row of a few columns; the buffer doubles, and is kept from row to row.
  private val INITIAL_BYTES = 1024
  // Java's arrays are a little shorter than 2 GiB.
  private val GREATEST_BYTES = Int.MaxValue.toLong - 16
  // Numbers are written in the order of the processor.
  require(ByteOrder.nativeOrder == ByteOrder.LITTLE_ENDIAN, "a processor with little-endian numbers is needed")

  private def at(index: Int): Long = Platform.BYTE_ARRAY_OFFSET.toLong + index
}
