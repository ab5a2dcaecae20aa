package glassflow

/** Reads a binary encoding from bytes that nobody has checked: each length is compared with what is left before
  * anything is done with it.
  *
  * To be used by one thread. All methods throw Refusal. format: its name, for error messages.
  */
abstract class EncodedInput(format: String) {
  import EncodedInput._

  /** What is read, and the end of the part that is. */
  def bytes: Array[Byte]
  def end: Int

  /** The position of the next byte. */
  var at = 0

  def left: Int = end - at

  /** What is wrong where the bytes end too early. */
  protected def tooShort: String

  /** A number of up to 64 bits: groups of 7 bits, the lowest first. */
  def varint(): Long = {
    var number, shift = 0L
    while (shift < MOST_SHIFT) {
      val byte = bytes(skip(1))
      number |= (byte & 0x7fL) << shift
      if (byte >= 0) return number
      shift += 7
    }
    throw new Refusal(s"invalid $format: a number of more than ten bytes, before byte $at")
  }

  /** 32 bits, the lowest byte first. */
  def fixed32(): Int = {
    val i = skip(java.lang.Integer.BYTES)
    (bytes(i) & 0xff) | (bytes(i + 1) & 0xff) << 8 | (bytes(i + 2) & 0xff) << 16 | bytes(i + 3) << 24
  }

  /** 64 bits, the lowest byte first. */
  def fixed64(): Long = (fixed32() & 0xffffffffL) | fixed32().toLong << 32

  /** A length that was read, of bytes that follow. */
  protected def announced(length: Long): Int = {
    if (length < 0 || length > left)
      throw new Refusal(s"invalid $format: $length bytes are announced and $left are left, before byte $at")
    length.toInt
  }

  /** The next bytes, copied. */
  def take(count: Int): Array[Byte] = {
    val from = skip(count)
    java.util.Arrays.copyOfRange(bytes, from, from + count)
  }

  /** Skip bytes, and return the position of the first. */
  def skip(count: Int): Int = {
    if (count > left) throw new Refusal(s"invalid $format: $tooShort")
    at += count
    at - count
  }
}

object EncodedInput {
  // Ten groups of 7 bits.
  private final val MOST_SHIFT = 70L

  /** A number whose sign is in its lowest bit (zigzag). */
  def signed(number: Long): Long = (number >>> 1) ^ -(number & 1)
}
