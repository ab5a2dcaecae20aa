package glassflow

import org.apache.spark.unsafe.types.UTF8String

/** Reads Avro's binary encoding (Avro specification, "Binary encoding") from bytes that nobody has checked: each length
  * is compared with what is left before anything is done with it. Avro's own decoder takes the memory first.
  *
  * To be used by one thread. All methods throw Refusal.
  */
final class AvroInput {
  import AvroInput._

  private var bytes: Array[Byte] = Array.emptyByteArray

  /** The position of the next byte. */
  var at = 0

  // How many items and records may still come. Those of no bytes, such as nulls, could be any number in a few bytes.
  private var budget = 0L

  /** Begin with a value at a position. */
  def open(bytes: Array[Byte], from: Int): Unit = {
    this.bytes = bytes
    at = from
    budget = bytes.length.toLong * READINGS + MOST_EMPTY_ITEMS
  }

  /** Count items or records that are entered. */
  def spend(count: Long): Unit = {
    budget -= count
    if (budget < 0) throw new Refusal(s"invalid Avro: more than $MOST_EMPTY_ITEMS items of no bytes, before byte $at")
  }

  def left: Int = bytes.length - at

  def boolean(): Boolean = {
    val byte = bytes(skip(1))
    if (byte != 0 && byte != 1) throw new Refusal(s"invalid Avro: $byte for a boolean, at byte ${at - 1}")
    byte == 1
  }

  def int(): Int = {
    val number = long()
    if (number != number.toInt) throw new Refusal(s"invalid Avro: $number for an int, before byte $at")
    number.toInt
  }

  /** A number of 64 bits: groups of 7 bits, the lowest first, with the sign in the lowest bit (zigzag). */
  def long(): Long = {
    var number, shift = 0L
    while (shift < MOST_SHIFT) {
      val byte = bytes(skip(1))
      number |= (byte & 0x7fL) << shift
      if (byte >= 0) return (number >>> 1) ^ -(number & 1)
      shift += 7
    }
    throw new Refusal(s"invalid Avro: a number of more than ten bytes, before byte $at")
  }

  def float(): Float = java.lang.Float.intBitsToFloat(fixed32())

  def double(): Double = java.lang.Double.longBitsToDouble((fixed32() & 0xffffffffL) | fixed32().toLong << 32)

  /** 32 bits, the lowest byte first. */
  def fixed32(): Int = {
    val i = skip(4)
    (bytes(i) & 0xff) | (bytes(i + 1) & 0xff) << 8 | (bytes(i + 2) & 0xff) << 16 | bytes(i + 3) << 24
  }

  /** The length of a text or of bytes, which follow. */
  def length(): Int = {
    val length = long()
    if (length < 0 || length > left)
      throw new Refusal(s"invalid Avro: $length bytes are announced and $left are left, before byte $at")
    length.toInt
  }

  /** A text; UTF-8 is checked. */
  def text(): UTF8String = {
    val count = length()
    val text = UTF8String.fromBytes(bytes, at, count)
    if (!text.isValid) throw new Refusal(s"invalid Avro: a text that is not UTF-8, at byte $at")
    at += count
    text
  }

  /** The next bytes, copied. */
  def take(count: Int): Array[Byte] = {
    val from = skip(count)
    java.util.Arrays.copyOfRange(bytes, from, from + count)
  }

  /** Skip bytes, and return the position of the first. */
  def skip(count: Int): Int = {
    if (count > left) throw new Refusal(s"invalid Avro: the value ends after ${bytes.length} bytes, too early")
    at += count
    at - count
  }

  /** The number of items in the next block of an array or map; 0 at its end. */
  def block(): Int = {
    var count = long()
    if (count < 0) {
      count = -count
      length() // the size of the block in bytes, for readers that skip it
    }
    if (count < 0 || count > left.toLong + MOST_EMPTY_ITEMS)
      throw new Refusal(s"invalid Avro: $count items are announced and $left bytes are left, before byte $at")
    spend(count)
    count.toInt
  }
}

object AvroInput {
  // Ten groups of 7 bits.
  private final val MOST_SHIFT = 70L
  private final val MOST_EMPTY_ITEMS = 100000
  // A value may be read for itself, and again for each level of paths into it.
  private final val READINGS = 8
}
