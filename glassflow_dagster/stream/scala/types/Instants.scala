package glassflow

import java.util.regex.Pattern

import org.apache.spark.unsafe.types.UTF8String

/** A time: seconds since 1970 (UTC), and nanoseconds to add. */
final class Instant(val seconds: Long, val nanos: Int)

/** Parses times and dates as GlassFlow does: by a list of Go's layouts, of which the first one that fits is used.
  *
  * RFC 3339 and its variants (a blank for the T, a fraction, no zone: then UTC, a date alone: then midnight) are parsed
  * from the bytes directly, the rare layouts by regular expressions. Beyond GlassFlow's variants, seconds may be
  * missing, and a zone may be +0200, +02 or, after a blank, UTC: PostgreSQL, Python, Ruby and browsers write them. As
  * in Go, these are accepted: an hour of one digit, several blanks for one, a fraction after any second, names in any
  * case, and an abbreviated zone, which counts as UTC except in the form GMT+3.
  */
object Instants {
  private val DAY_SECONDS = 86400L
  // A longer text fits no layout.
  private val LONGEST = 64

  /** The time of a text, null where it fits no layout. */
  def parse(text: UTF8String): Instant = {
    val found = rfc3339(text)
    if (found != null || text.numBytes > LONGEST) found else rare(text.toString)
  }

  /** The day of a text without a time of day, in days since 1970, null where it fits no layout. */
  def parseDay(text: UTF8String): java.lang.Long = {
    val plain = digitsAt(text, 0, 4) >= 0
    if (text.numBytes == 10 && plain && text.getByte(4) == '-' && text.getByte(7) == '-')
      day(digitsAt(text, 0, 4), digitsAt(text, 5, 2), digitsAt(text, 8, 2))
    else if (text.numBytes > LONGEST) null
    else firstDay(text.toString)
  }

  /** The time of a text in RFC 3339 or one of its variants, else null. */
  private def rfc3339(text: UTF8String): Instant = {
    val size = text.numBytes
    if (size < 10 || text.getByte(4) != '-' || text.getByte(7) != '-') return null
    val date = day(digitsAt(text, 0, 4), digitsAt(text, 5, 2), digitsAt(text, 8, 2))
    if (date == null) return null
    if (size == 10) return new Instant(date * DAY_SECONDS, 0)
    if (size < 16 || text.getByte(10) != 'T' && text.getByte(10) != ' ' || text.getByte(13) != ':') return null
    val hasSeconds = size > 16 && text.getByte(16) == ':'
    val second = if (hasSeconds) digitsAt(text, 17, 2) else 0
    val ofDay = timeOfDay(digitsAt(text, 11, 2), digitsAt(text, 14, 2), second)
    if (ofDay < 0) return null
    var at = if (hasSeconds) 19 else 16
    var nanos = 0
    if (hasSeconds && at < size && (text.getByte(at) == '.' || text.getByte(at) == ',')) {
      val first = at + 1
      var unit = 100000000
      at += 1
      while (at < size && isDigit(text.getByte(at))) {
        nanos += (text.getByte(at) - '0') * unit
        unit /= 10
        at += 1
      }
      if (at == first) return null
    }
    val offset = offsetAt(text, at)
    if (offset == null) null else new Instant(date * DAY_SECONDS + ofDay - offset, nanos)
  }

  /** The zone from `start` to the end, also after a blank, in seconds east of UTC; null where it is none. */
  private def offsetAt(text: UTF8String, start: Int): java.lang.Long = {
    val size = text.numBytes
    if (start == size) return 0L
    val isAfterBlank = text.getByte(start) == ' '
    val at = if (isAfterBlank) start + 1 else start
    val length = size - at
    if (length == 1 && text.getByte(at) == 'Z' || isAfterBlank && isUtc(text, at)) return 0L
    if (length < 3 || text.getByte(at) != '+' && text.getByte(at) != '-') return null
    val minutes = length match {
      case 3 => 0
      case 5 => digitsAt(text, at + 3, 2)
      case 6 if text.getByte(at + 3) == ':' => digitsAt(text, at + 4, 2)
      case _ => -1
    }
    val hours = digitsAt(text, at + 1, 2)
    if (!isOffset(hours, minutes)) null
    else (if (text.getByte(at) == '-') -1L else 1L) * (hours * 3600 + minutes * 60)
  }

  private def isUtc(text: UTF8String, at: Int): Boolean =
    text.numBytes == at + 3 && text.getByte(at) == 'U' && text.getByte(at + 1) == 'T' && text.getByte(at + 2) == 'C'

  private def isDigit(byte: Byte): Boolean = byte >= '0' && byte <= '9'

  /** The value of `count` digits from `start` on; -1 where there are not that many. */
  private def digitsAt(text: UTF8String, start: Int, count: Int): Int = {
    if (start + count > text.numBytes) return -1
    var value = 0
    var i = start
    while (i < start + count) {
      val byte = text.getByte(i)
      if (!isDigit(byte)) return -1
      value = value * 10 + (byte - '0')
      i += 1
    }
    value
  }

  private def isOffset(hours: Int, minutes: Int): Boolean = hours >= 0 && hours <= 24 && minutes >= 0 && minutes < 60

  /** Seconds since midnight; -1 where there is no such time of day. */
  private def timeOfDay(hour: Int, minute: Int, second: Int): Int =
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) -1
    else hour * 3600 + minute * 60 + second

  /** Days since 1970 of a day of the Gregorian calendar; null where there is no such day. */
  private def day(year: Int, month: Int, dayOfMonth: Int): java.lang.Long =
    if (year < 0 || month < 1 || month > 12 || dayOfMonth < 1) null
    else if (dayOfMonth > java.time.YearMonth.of(year, month).lengthOfMonth) null
    else java.time.LocalDate.of(year, month, dayOfMonth).toEpochDay

  // The rare layouts. Groups: y or yy year, b a month's name or m its number, d day, h, i, s time, f fraction, z zone.
  private val MONTHS = Array("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
  private val MONTH = MONTHS.mkString("(?<b>", "|", ")")
  private val WEEKDAY = "(?:mon|tue|wed|thu|fri|sat|sun)"
  private val LONG_WEEKDAY = "(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
  private val MINUTES = "(?<h>\\d{1,2}):(?<i>\\d{2})"
  private val SECONDS = MINUTES + ":(?<s>\\d{2})(?:[.,](?<f>\\d+))?"
  // Upper case only, as in Go.
  private val ZONE = "(?<z>(?-i:GMT[+-]\\d{1,2}|[A-Z]{3,4})|[+-]\\d{4})"

  private val DAYS: Array[Layout] = Array(
    "(?<y>\\d{4})-(?<m>\\d{2})-(?<d>\\d{2})",
    "(?<m>\\d{2})/(?<d>\\d{2})/(?<y>\\d{4})",
    "(?<d>\\d{2})/(?<m>\\d{2})/(?<y>\\d{4})",
    "(?<d>\\d{2})\\.(?<m>\\d{2})\\.(?<y>\\d{4})",
    "(?<m>\\d{2})\\.(?<d>\\d{2})\\.(?<y>\\d{4})",
    "(?<y>\\d{4})/(?<m>\\d{2})/(?<d>\\d{2})",
    s"$MONTH +(?<d>\\d{1,2}), +(?<y>\\d{4})",
    s"(?<d>\\d{1,2}) +$MONTH +(?<y>\\d{4})"
  ).map(new Layout(_))

  private val TIMES: Array[Layout] = Array(
    s"(?<y>\\d{4})-(?<m>\\d{2})-(?<d>\\d{2})[T ]$SECONDS(?<z>(?-i:Z)|[+-]\\d{2}:\\d{2})?", // an hour of one digit
    s"$WEEKDAY, +(?<d>\\d{2}) +$MONTH +(?<y>\\d{4}) +$SECONDS +$ZONE", // RFC 1123
    s"(?<d>\\d{2}) +$MONTH +(?<yy>\\d{2}) +$MINUTES +$ZONE", // RFC 822
    s"$LONG_WEEKDAY, +(?<d>\\d{2})-$MONTH-(?<yy>\\d{2}) +$SECONDS +$ZONE", // RFC 850
    s"$WEEKDAY +$MONTH +(?<d>\\d{1,2}) +$SECONDS +(?<y>\\d{4})" // ANSI C
  ).map(new Layout(_))

  /** The time of a text in one of the rare layouts, or of a date alone, else null. */
  private def rare(text: String): Instant = {
    for (layout <- TIMES) {
      val parts = layout.read(text)
      val found = if (parts == null) null else timeOf(parts)
      if (found != null) return found
    }
    val date = firstDay(text)
    if (date == null) null else new Instant(date * DAY_SECONDS, 0)
  }

  /** The day of a text in the first layout of a date that fits, else null. */
  private def firstDay(text: String): java.lang.Long = {
    for (layout <- DAYS) {
      val parts = layout.read(text)
      val found = if (parts == null) null else dayOf(parts)
      if (found != null) return found
    }
    null
  }

  /** The time of a layout's groups; null where there is no such time. */
  private def timeOf(parts: Map[String, String]): Instant = {
    val date = dayOf(parts)
    val ofDay = timeOfDay(number(parts, "h", 0), number(parts, "i", 0), number(parts, "s", 0))
    val offset = offsetOf(parts.getOrElse("z", null))
    if (date == null || ofDay < 0 || offset == null) return null
    val fraction = parts.getOrElse("f", null)
    val nanos = if (fraction == null) 0 else fraction.padTo(9, '0').take(9).toInt
    new Instant(date * DAY_SECONDS + ofDay - offset, nanos)
  }

  /** The day of a layout's groups, in days since 1970; null where there is no such day. */
  private def dayOf(parts: Map[String, String]): java.lang.Long = {
    val short = number(parts, "yy", -1)
    // Go's rule for years of two digits.
    val year = if (short < 0) number(parts, "y", -1) else if (short >= 69) 1900 + short else 2000 + short
    val name = parts.getOrElse("b", null)
    val month =
      if (name == null) number(parts, "m", -1) else MONTHS.indexOf(name.toLowerCase(java.util.Locale.ROOT)) + 1
    day(year, month, number(parts, "d", -1))
  }

  /** The zone's offset in seconds east of UTC; null for an invalid one. */
  private def offsetOf(zone: String): java.lang.Long =
    if (zone == null) 0L
    else if (zone.startsWith("GMT") && zone.length > 3) zone.substring(3).toInt * 3600L
    else if (!zone.startsWith("+") && !zone.startsWith("-")) 0L
    else {
      val digits = zone.replace(":", "")
      val (hours, minutes) = (digits.substring(1, 3).toInt, digits.substring(3, 5).toInt)
      if (!isOffset(hours, minutes)) null
      else (if (zone.startsWith("-")) -1L else 1L) * (hours * 3600 + minutes * 60)
    }

  private def number(parts: Map[String, String], name: String, otherwise: Int): Int =
    parts.get(name).map(_.toInt).getOrElse(otherwise)

  /** A layout as a regular expression, whose groups have names of one or two letters. */
  private class Layout(source: String) {
    private val pattern = Pattern.compile(source, Pattern.CASE_INSENSITIVE)
    private val names = "\\(\\?<([a-z]{1,2})>".r.findAllMatchIn(source).map(_.group(1)).toArray

    /** The text's parts by the names of their groups; null where the text does not fit the layout. */
    def read(text: String): Map[String, String] = {
      val matcher = pattern.matcher(text)
      if (!matcher.matches) null else names.map(n => n -> matcher.group(n)).filter(_._2 != null).toMap
    }
  }
}
