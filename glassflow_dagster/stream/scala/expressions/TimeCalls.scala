package glassflow

import java.time.{LocalDate, LocalDateTime, ZoneOffset}
import java.math.BigInteger
import java.time.format.{DateTimeFormatter, DateTimeFormatterBuilder}
import java.util.regex.Pattern

import org.apache.spark.sql.catalyst.util.DateTimeUtils
import org.apache.spark.unsafe.types.UTF8String

/** Functions of times, which are microseconds since 1970, and the parts of times and durations. Everything is UTC. */
object TimeCalls {
  import Call.Build

  private val ZONE = "(Z|[+-]\\d{2}:\\d{2})"
  private val SECONDS = "\\d{2}:\\d{2}:\\d{2}"
  private val ISO_8601 =
    Pattern.compile(s"\\d{4}-\\d{2}-\\d{2}( $SECONDS\\.\\d{6}|T$SECONDS(\\.\\d{1,9})?$ZONE)")
  private val DATE = Pattern.compile(s"\\d{4}-\\d{2}-\\d{2}([T ]$SECONDS(\\.\\d{1,9})?$ZONE?)?")

  // Seconds since 1970 of the years 1 to 9999, which Go's layouts can write.
  private final val FIRST_SECOND = -62135596800L
  private final val LAST_SECOND = 253402300799L
  private final val MICROS = 1000000L
  private final val NANOS = 1000000000L
  private final val DAY_SECONDS = 86400L
  // A longer text fits no layout.
  private final val LONGEST = 64

  val BUILTINS: Map[String, Build] = Map(
    "date" -> (call =>
      e => {
        val found = parse(call.text(e, 0), DATE)
        if (found == null) call.fail("the value is not a time; write 2024-10-28T10:00:05Z or 2024-10-28") else found
      }
    )
  )

  val HELPERS: Map[String, Build] = Map(
    "parseISO8601" -> (call =>
      e => {
        val text = call.textOrNull(e, 0)
        val found = if (text == null) null else parse(text, ISO_8601)
        if (found == null) 0L else Math.floorDiv(found, MICROS)
      }
    ),
    "toDate" -> (call =>
      e =>
        call.arguments(0).value(e) match {
          case null => NO_DATE
          case micros: java.lang.Long if call.arguments(0).kind == "time" => date(Math.floorDiv(micros, MICROS))
          case number =>
            val isSecond =
              Values.compareNumbers(number, FIRST_SECOND) >= 0 && Values.compareNumbers(number, LAST_SECOND) <= 0
            if (!isSecond) call.fail("the value is not a second in the years 1 to 9999")
            date(Math.floor(Values.double(number)).toLong)
        }
    )
  )

  /** Functions that turn whole numbers since 1970 into the text of a time, with all its digits. */
  val FROM_UNIX: Map[String, Build] = Map(
    "fromUnix" -> fromUnix(1, digits = 0),
    "fromUnixMilli" -> fromUnix(1000, digits = 3),
    "fromUnixMicro" -> fromUnix(MICROS, digits = 6),
    "fromUnixNano" -> fromUnix(NANOS, digits = 9),
    "fromUnixDay" -> ofWhole { day =>
      if (day < FIRST_SECOND / DAY_SECONDS || day > LAST_SECOND / DAY_SECONDS) null
      else UTF8String.fromString(LocalDate.ofEpochDay(day).toString)
    }
  )

  private def fromUnix(perSecond: Long, digits: Int): Build = {
    val written = new DateTimeFormatterBuilder().appendInstant(digits).toFormatter
    ofWhole { number =>
      val second = Math.floorDiv(number, perSecond)
      if (!isWritableSecond(second)) null
      else {
        val nanos = Math.floorMod(number, perSecond) * (NANOS / perSecond)
        UTF8String.fromString(written.format(java.time.Instant.ofEpochSecond(second, nanos)))
      }
    }
  }

  /** A function of a whole number, of which nil is nil. Where it gives null, the number is no time that can be written.
    */
  private def ofWhole(text: Long => UTF8String): Build = call =>
    e => {
      val number = call.arguments(0).value(e)
      if (number == null) null
      else {
        val whole = wholeOrNull(number)
        if (whole == null) call.fail(s"${call.arguments(0).source} is not a whole number")
        val found = if (whole.bitLength < 64) text(whole.longValue) else null
        if (found == null) call.fail("the value is not a time in the years 1 to 9999") else found
      }
    }

  private def wholeOrNull(value: Any): BigInteger = value match {
    case number: NumberValue => number.whole
    case number: java.lang.Long => BigInteger.valueOf(number)
    case number: BigInteger => number
    case _ => null
  }

  // As in GlassFlow.
  private val NO_DATE = UTF8String.fromString("0")

  /** The methods of a time or duration, by the kind of their value and their name. */
  val METHODS: Map[String, Map[String, Long => Any]] = Map(
    "time" -> Map(
      "Unix" -> (Math.floorDiv(_, MICROS)),
      "UnixMilli" -> (Math.floorDiv(_, 1000L)),
      "UnixMicro" -> (identity(_)),
      "Year" -> (at(_).getYear.toLong),
      "Month" -> (at(_).getMonthValue.toLong),
      "Day" -> (at(_).getDayOfMonth.toLong),
      "Hour" -> (at(_).getHour.toLong),
      "Minute" -> (at(_).getMinute.toLong),
      "Second" -> (at(_).getSecond.toLong),
      "YearDay" -> (at(_).getDayOfYear.toLong),
      // Go's week begins with Sunday as 0.
      "Weekday" -> (at(_).getDayOfWeek.getValue.toLong % 7)
    ),
    "duration" -> Map(
      "Hours" -> (_ / 3600e6),
      "Minutes" -> (_ / 60e6),
      "Seconds" -> (_ / 1e6),
      "Milliseconds" -> (_ / 1000L),
      "Microseconds" -> (identity(_))
    )
  )

  /** Whether a time is in the years 1 to 9999. */
  def isWritable(micros: Long): Boolean = isWritableSecond(Math.floorDiv(micros, MICROS))

  private def isWritableSecond(second: Long): Boolean = second >= FIRST_SECOND && second <= LAST_SECOND

  private val SECOND = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss'Z'")

  /** A time as text, without its fraction of a second. */
  def text(micros: Long): UTF8String = UTF8String.fromString(SECOND.format(at(micros)))

  private def at(micros: Long): LocalDateTime = {
    val nanos = Math.floorMod(micros, MICROS).toInt * 1000
    LocalDateTime.ofEpochSecond(Math.floorDiv(micros, MICROS), nanos, ZoneOffset.UTC)
  }

  private def date(second: Long): UTF8String =
    UTF8String.fromString(LocalDate.ofEpochDay(Math.floorDiv(second, DAY_SECONDS)).toString)

  /** The time of a text in this form, in microseconds; null for any other. */
  private def parse(text: UTF8String, form: Pattern): java.lang.Long =
    if (text.numBytes > LONGEST || !form.matcher(text.toString).matches) null
    else DateTimeUtils.stringToTimestamp(text, ZoneOffset.UTC).map(Long.box).orNull
}

/** A part of a time or duration: `date(x).Year()`. */
final class MethodTerm(val kind: String, val source: String, base: Term, name: String) extends Term {
  private val part = TimeCalls.METHODS(base.kind)(name)
  override def value(e: Evaluation): Any = part(base.long(e, this))
}
