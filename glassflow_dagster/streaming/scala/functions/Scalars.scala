package glassflow

import org.apache.spark.sql.catalyst.util.{ArrayData, CollationSupport, GenericArrayData}
import org.apache.spark.unsafe.types.UTF8String

/** Functions of the expression language whose Spark columns are a chain of regular expressions, conversions to decimals
  * and the like: each of them took longer than a record's JSON field does. No argument is ever NULL here.
  */
object Scalars {
  // Of Go's white space, what is in ASCII; and all of it.
  private val ASCII_SPACE = "\t\n\u000b\f\r "
  private val SPACE = UTF8String.fromString(
    ASCII_SPACE + "\u0085\u00a0\u1680" + ('\u2000' to '\u200a').mkString + "\u2028\u2029\u202f\u205f\u3000"
  )

  // From here on every float is a whole number, and not every whole number is a float.
  private val WHOLE = (1L << 53).toDouble
  // Between them Go writes no exponent.
  private val LEAST_PLAIN = 1e-4
  private val EXPONENT = 1e21

  /** Most texts are ASCII, which needs no tables of cases. */
  def upper(text: UTF8String): UTF8String =
    if (text.isFullAscii) text.toUpperCaseAscii else CollationSupport.Upper.execBinaryICU(text)

  def lower(text: UTF8String): UTF8String =
    if (text.isFullAscii) text.toLowerCaseAscii else CollationSupport.Lower.execBinaryICU(text)

  /** Takes white space from both ends. */
  def trim(text: UTF8String): UTF8String = {
    val bytes = text.numBytes
    if (bytes == 0 || (isInk(text.getByte(0)) && isInk(text.getByte(bytes - 1)))) text else text.trim(SPACE)
  }

  private def isInk(byte: Byte): Boolean = byte > 0 && ASCII_SPACE.indexOf(byte.toInt) < 0

  /** The parts between a separator, which is not empty. */
  def split(text: UTF8String, separator: UTF8String): ArrayData = {
    val (bytes, wanted) = (text.getBytes, separator.getBytes)
    val parts = new scala.collection.mutable.ArrayBuffer[Any](4)
    var (start, at) = (0, 0)
    while (at <= bytes.length - wanted.length) {
      if (begins(bytes, at, wanted)) {
        parts += UTF8String.fromBytes(bytes, start, at - start)
        at += wanted.length
        start = at
      } else at += 1
    }
    parts += UTF8String.fromBytes(bytes, start, bytes.length - start)
    new GenericArrayData(parts.toArray)
  }

  private def begins(bytes: Array[Byte], at: Int, wanted: Array[Byte]): Boolean = {
    var i = 0
    while (i < wanted.length && bytes(at + i) == wanted(i)) i += 1
    i == wanted.length
  }

  /** A text of digits with or without a sign as 64 bits, null for any other. */
  def integer(text: UTF8String): java.lang.Long = {
    val first = if (text.numBytes > 0 && (text.getByte(0) == '+' || text.getByte(0) == '-')) 1 else 0
    var i = first
    while (i < text.numBytes && text.getByte(i) >= '0' && text.getByte(i) <= '9') i += 1
    val found = new UTF8String.LongWrapper
    if (i > first && i == text.numBytes && text.toLong(found)) found.value else null
  }

  /** Half away from zero; there is no -0. */
  def round(number: Double): Double = {
    val size = Math.abs(number)
    if (!(size < WHOLE)) number
    else {
      val below = Math.floor(size)
      val rounded = if (size - below >= 0.5) below + 1 else below
      if (number < 0) 0.0 - rounded else rounded
    }
  }

  /** What Go's %v writes: the shortest digits; an exponent below 1e-4 and from 1e21 on, with a sign and two digits. */
  def floatText(number: Double): UTF8String = UTF8String.fromString(written(number))

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

  /** The whole number that a float is written as, else the one below it; 0 where 64 bits hold neither. */
  def toInt(number: Double): Long =
    if (Math.abs(number) < WHOLE) Math.floor(number).toLong
    else {
      val digits = integer(floatText(number))
      if (digits != null) digits
      else if (number <= Long.MaxValue && number >= Long.MinValue) number.toLong
      else 0
    }
}
