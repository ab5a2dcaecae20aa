package glassflow

import org.apache.spark.unsafe.types.UTF8String

/** Reads Avro's binary encoding (Avro specification, "Binary encoding"). Avro's own decoder takes the memory that a
  * length announces before it looks at what is left.
  *
  * To be used by one thread. All methods throw Refusal.
  */
final class AvroInput extends EncodedInput("Avro") {
  import AvroInput._

  private var opened: Array[Byte] = Array.emptyByteArray
  override def bytes: Array[Byte] = opened
  override def end: Int = opened.length
  override protected def tooShort: String = s"it ends after ${bytes.length} bytes, too early"

  // How many items and records may still come. Those of no bytes, such as nulls, could be any number in a few bytes.
  private var budget = 0L

  /** Begin with a value at a position. */
  def open(bytes: Array[Byte], from: Int): Unit = {
    opened = bytes
    at = from
    budget = bytes.length.toLong * READINGS + MOST_EMPTY_ITEMS
  }

  /** Count items or records that are entered. */
  def spend(count: Long): Unit = {
    budget -= count
    if (budget < 0) throw new Refusal(s"invalid Avro: more than $MOST_EMPTY_ITEMS items of no bytes, before byte $at")
  }

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

  def long(): Long = EncodedInput.signed(varint())

  def float(): Float = java.lang.Float.intBitsToFloat(fixed32())

  def double(): Double = java.lang.Double.longBitsToDouble(fixed64())

  /** The length of a text or of bytes, which follow. */
  def length(): Int = announced(long())

  /** A text; UTF-8 is checked. */
  def text(): UTF8String = {
    val count = length()
    if (!Utf8.isValid(bytes, at, count)) throw new Refusal(s"invalid Avro: a text that is not UTF-8, at byte $at")
    UTF8String.fromBytes(bytes, skip(count), count)
  }

  /** Read the items of an array or map, block by block. */
  def items(read: => Unit): Unit = {
    var count = block()
    while (count > 0) {
      while (count > 0) {
        read
        count -= 1
      }
      count = block()
    }
  }

  /** The number of items in the next block of an array or map; 0 at its end. */
  private def block(): Int = {
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
  private final val MOST_EMPTY_ITEMS = 100000
  // A value may be read for itself, and again for each level of paths into it.
  private final val READINGS = 8
}
