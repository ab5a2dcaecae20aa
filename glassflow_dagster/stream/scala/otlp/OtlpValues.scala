package glassflow

import java.math.{BigDecimal, MathContext}
import java.time.LocalDate
import java.util.{Base64, TreeMap}

import org.apache.spark.unsafe.types.UTF8String

/** Texts and JSON of the values in OpenTelemetry's messages, as GlassFlow writes them. To be used by one thread. */
final class OtlpValues {
  import OtlpValues._

  // The day of the time that was written last, as its text: most times of a request are of one day.
  private var day = Long.MinValue
  private var dayText = ""

  /** Add attributes as an object of texts, by name; of several with one name the last one counts, as in a map of Go's.
    */
  def attributes(out: JsonText, attributes: Iterator[OtlpMessage]): Unit =
    writeObject(out, attributes)(value => out.quote(text(value)))

  /** A value as text: a text as it is, bytes in hexadecimal digits, a list or a map as its JSON; no value is empty. */
  def text(value: OtlpMessage): UTF8String =
    if (value.has("string_value")) value.text("string_value")
    else if (value.has("bool_value")) utf8(if (value.long("bool_value") != 0) "true" else "false")
    else if (value.has("int_value")) utf8(value.long("int_value").toString)
    else if (value.has("double_value")) utf8(doubleText(value.double("double_value")))
    else if (value.has("bytes_value")) utf8(hex(value.bytes("bytes_value")))
    else if (value.has("array_value") || value.has("kvlist_value")) {
      val out = new JsonText
      json(out, value)
      out.toText
    } else UTF8String.EMPTY_UTF8

  /** Add a value inside a list or a map as JSON: bytes in base64, null for no value. */
  private def json(out: JsonText, value: OtlpMessage): Unit =
    if (value.has("string_value")) out.quote(value.text("string_value"))
    else if (value.has("bytes_value"))
      out.quote(UTF8String.fromBytes(Base64.getEncoder.encode(value.bytes("bytes_value"))))
    else if (value.has("double_value")) number(out, value.double("double_value"))
    else if (value.has("bool_value") || value.has("int_value")) out.addBytes(text(value).getBytes)
    else if (value.has("array_value")) list(out, value.message("array_value").messages("values"))(json(out, _))
    else if (value.has("kvlist_value")) writeObject(out, value.message("kvlist_value").messages("values"))(json(out, _))
    else out.add("null")

  private def writeObject(out: JsonText, members: Iterator[OtlpMessage])(write: OtlpMessage => Unit): Unit = {
    val sorted = new TreeMap[UTF8String, OtlpMessage]()
    members.foreach(member => sorted.put(member.text("key"), member.message("value")))
    out.add('{')
    var isFirst = true
    sorted.forEach { (key, value) =>
      if (!isFirst) out.add(',')
      isFirst = false
      out.quote(key)
      out.add(':')
      write(value)
    }
    out.add('}')
  }

  /** A time as RFC 3339 in UTC, with as many digits of the second as are not zero. nanos: since 1970. */
  def time(nanos: Long): String = {
    val seconds = Math.floorDiv(nanos, NANOS)
    val days = Math.floorDiv(seconds, SECONDS_A_DAY)
    if (days != day) {
      dayText = LocalDate.ofEpochDay(days).toString
      day = days
    }
    val second = Math.floorMod(seconds, SECONDS_A_DAY).toInt
    val out = new StringBuilder(LONGEST_TIME)
    out.append(dayText).append('T')
    twoDigits(out, second / 3600).append(':')
    twoDigits(out, second / 60 % 60).append(':')
    twoDigits(out, second % 60)
    var fraction = Math.floorMod(nanos, NANOS)
    if (fraction != 0) {
      var digits = 9
      while (fraction % 10 == 0) {
        fraction /= 10
        digits -= 1
      }
      val text = fraction.toString
      out.append('.').append("0" * (digits - text.length)).append(text)
    }
    out.append('Z').toString
  }

  private def twoDigits(out: StringBuilder, number: Int): StringBuilder =
    out.append(('0' + number / 10).toChar).append(('0' + number % 10).toChar)
}

object OtlpValues {
  private final val NANOS = 1000000000L
  private final val SECONDS_A_DAY = 86400L
  private final val LONGEST_TIME = 30
  // A decimal number of so many digits is the only one of as many that is read as its double, and of the second number
  // of digits each double has one that is read as it.
  private final val SURE_DIGITS = 15
  private final val MOST_DIGITS = 17
  private val HEX = java.util.HexFormat.of()

  /** Add a list. */
  def list[T](out: JsonText, values: Iterator[T])(write: T => Unit): Unit = {
    out.add('[')
    var isFirst = true
    values.foreach { value =>
      if (!isFirst) out.add(',')
      isFirst = false
      write(value)
    }
    out.add(']')
  }

  /** Add a number; one that JSON does not have as the text that Protobuf's JSON has for it. */
  def number(out: JsonText, number: Double): Unit =
    if (number.isInfinite || number.isNaN) {
      out.add('"')
      out.add(number.toString)
      out.add('"')
    } else out.add(if (isNegativeZero(number)) "-0.0" else shortest(number).toString)

  /** A double in its fewest digits and without an exponent, as Go's FormatFloat(x, 'f', -1, 64). */
  def doubleText(number: Double): String =
    if (number.isNaN) "NaN"
    else if (number.isInfinite) if (number > 0) "+Inf" else "-Inf"
    else if (isNegativeZero(number)) "-0"
    else shortest(number).toPlainString

  private def isNegativeZero(number: Double): Boolean = number == 0 && 1 / number < 0

  /** The decimal number of the fewest digits that is read as this double. Java's own text has more of them for some
    * doubles, before version 19.
    */
  private def shortest(number: Double): BigDecimal =
    if (number == 0) BigDecimal.ZERO
    else {
      val exact = new BigDecimal(number)
      // The smallest doubles have fewer digits than others.
      var digits = if (Math.abs(number) < java.lang.Double.MIN_NORMAL) 1 else SURE_DIGITS
      var found = exact.round(new MathContext(digits))
      while (digits < MOST_DIGITS && found.doubleValue != number) {
        digits += 1
        found = exact.round(new MathContext(digits))
      }
      found.stripTrailingZeros
    }

  /** The id of a trace or span in hexadecimal digits; empty for one that is not set, which is all zeros. */
  def id(bytes: Array[Byte], length: Int, name: String): String =
    if (bytes.nonEmpty && bytes.length != length)
      throw new Refusal(s"invalid OTLP: $name has ${bytes.length} bytes and not $length")
    else if (bytes.forall(_ == 0)) ""
    else hex(bytes)

  private def hex(bytes: Array[Byte]): String = HEX.formatHex(bytes)

  private def utf8(ascii: String): UTF8String = UTF8String.fromString(ascii)
}
