package glassflow

import org.apache.spark.sql.catalyst.util.CollationSupport
import org.apache.spark.unsafe.types.UTF8String

/** Functions of single values that several functions of the expression language share. No argument is null. */
object Scalars {
  // Go's white space: the characters in ASCII, and all of them.
  private val ASCII_SPACE = "\t\n\u000b\f\r "
  private val SPACE = UTF8String.fromString(
    ASCII_SPACE + "\u0085\u00a0\u1680" + ('\u2000' to '\u200a').mkString + "\u2028\u2029\u202f\u205f\u3000"
  )

  // From 2^53 on every double is a whole number, but not every whole number is a double.
  private val WHOLE = (1L << 53).toDouble
  // Go writes numbers from the first to below the second one without an exponent.
  private val LEAST_PLAIN = 1e-4
  private val EXPONENT = 1e21

  /** Upper case. Most texts are ASCII, which needs no Unicode tables. */
  def upper(text: UTF8String): UTF8String =
    if (text.isFullAscii) text.toUpperCaseAscii else CollationSupport.Upper.execBinaryICU(text)

  def lower(text: UTF8String): UTF8String =
    if (text.isFullAscii) text.toLowerCaseAscii else CollationSupport.Lower.execBinaryICU(text)

  /** The text without white space at both ends. */
  def trim(text: UTF8String): UTF8String = {
    val bytes = text.numBytes
    if (bytes == 0 || (isInk(text.getByte(0)) && isInk(text.getByte(bytes - 1)))) text else text.trim(SPACE)
  }

  /** Whether a byte is an ASCII character other than white space. */
  private def isInk(byte: Byte): Boolean = byte > 0 && ASCII_SPACE.indexOf(byte.toInt) < 0

  /** The parts of a text between separators. The separator is not empty. */
  def split(text: UTF8String, separator: UTF8String): Array[Any] = {
    val (bytes, wanted) = (text.getBytes, separator.getBytes)
    val parts = new Array[Any](occurrences(bytes, wanted) + 1)
    var (part, start) = (0, 0)
    while (part < parts.length - 1) {
      val at = find(bytes, start, wanted)
      parts(part) = UTF8String.fromBytes(bytes, start, at - start)
      start = at + wanted.length
      part += 1
    }
    parts(part) = UTF8String.fromBytes(bytes, start, bytes.length - start)
    parts
  }

  private def occurrences(bytes: Array[Byte], wanted: Array[Byte]): Int = {
    var (count, at) = (0, find(bytes, 0, wanted))
    while (at >= 0) {
      count += 1
      at = find(bytes, at + wanted.length, wanted)
    }
    count
  }

  /** The first position of some bytes from `from` on; -1 where they are missing. */
  private def find(bytes: Array[Byte], from: Int, wanted: Array[Byte]): Int = {
    var at = from
    while (at <= bytes.length - wanted.length) {
      if (begins(bytes, at, wanted)) return at
      at += 1
    }
    -1
  }

  private def begins(bytes: Array[Byte], at: Int, wanted: Array[Byte]): Boolean = {
    var i = 0
    while (i < wanted.length && bytes(at + i) == wanted(i)) i += 1
    i == wanted.length
  }

  /** The value of a text of digits, with or without a sign; null for another text, or a value beyond 64 bits. */
  def integer(text: UTF8String): java.lang.Long = {
    val first = if (text.numBytes > 0 && (text.getByte(0) == '+' || text.getByte(0) == '-')) 1 else 0
    var i = first
    while (i < text.numBytes && text.getByte(i) >= '0' && text.getByte(i) <= '9') i += 1
    val found = new UTF8String.LongWrapper
    if (i > first && i == text.numBytes && text.toLong(found)) found.value else null
  }

  /** The nearest whole number, halves away from zero, never -0. */
  def round(number: Double): Double = {
    val size = Math.abs(number)
    if (!(size < WHOLE)) number
    else {
      val below = Math.floor(size)
      val rounded = if (size - below >= 0.5) below + 1 else below
      if (number < 0) 0.0 - rounded else rounded
    }
  }

  /** The number as Go's %v prints it: with the fewest digits; below 1e-4 and from 1e21 on with an exponent, which has a
    * sign and at least two digits.
    */
  def floatText(number: Double): UTF8String = UTF8String.fromString(written(number))

  /** The text that is encoded in a URL; null where it is not encoded so, or the bytes that it stands for are not UTF-8.
    */
  def urlDecode(text: UTF8String): UTF8String = {
    val (encoded, decoded) = (text.getBytes, new java.io.ByteArrayOutputStream(text.numBytes))
    var at = 0
    while (at < encoded.length) {
      if (encoded(at) != '%') decoded.write(if (encoded(at) == '+') ' ' else encoded(at).toInt)
      else {
        val byte = if (at + 2 < encoded.length) hex(encoded(at + 1)) << 4 | hex(encoded(at + 2)) else -1
        if (byte < 0) return null
        decoded.write(byte)
        at += 2
      }
      at += 1
    }
    Utf8.text(decoded.toByteArray)
  }

  /** The value of a hexadecimal digit; -1 for any other byte. */
  def hex(byte: Byte): Int = if (byte < 0) -1 else Character.digit(byte.toChar, 16)

  private def written(number: Double): String = {
    val size = Math.abs(number)
    if (size < WHOLE && number == number.toLong) number.toLong.toString
    else if (size >= LEAST_PLAIN && size < EXPONENT)
      java.math.BigDecimal.valueOf(number).stripTrailingZeros.toPlainString
    else {
      val digits = number.toString
      val e = digits.indexOf('E')
      if (e < 0) digits // neither a number nor finite
      else {
        val exponent = digits.substring(e + 1).toInt
        f"${digits.substring(0, e).stripSuffix(".0")}e${if (exponent < 0) "-" else "+"}${Math.abs(exponent)}%02d"
      }
    }
  }

  /** The whole number that the float prints as, else the next one below it; 0 where it does not fit into 64 bits. */
  def toInt(number: Double): Long =
    if (Math.abs(number) < WHOLE) Math.floor(number).toLong
    else {
      val digits = integer(floatText(number))
      if (digits != null) digits
      else if (number <= Long.MaxValue && number >= Long.MinValue) number.toLong
      else 0
    }
}
