package glassflow

import java.math.{BigDecimal => Number, BigInteger, MathContext}
import java.nio.charset.StandardCharsets.UTF_8

import com.fasterxml.jackson.core.{JsonParser, JsonToken}
import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** The result for a value that does not fit its column; path: where it is inside a nested value, such as `[3].a`. */
final case class ConversionError(problem: String, path: String = "") {

  /** The same error, seen from the enclosing value. */
  def in(outer: String): ConversionError = copy(path = outer + path)
  def message: String = if (path.isEmpty) problem else s"${path.stripPrefix(".")}: $problem"
}

/** A ClickHouse type, as Python describes it (streaming/stages/mapping.py).
  *
  * name: the type's name without parameters, Nullable and LowCardinality; text: the whole type; base: the whole type
  * without Nullable and LowCardinality; numbers: a length, precision and scale, or digits after the second; names:
  * those of an Enum's values, a Tuple's elements or a JSON column's typed paths; inner: the types of elements.
  */
final case class ColumnSpec(
    name: String,
    text: String,
    base: String,
    nullable: Boolean,
    numbers: Array[Int],
    names: Array[String],
    inner: Array[ColumnSpec]
)

object ColumnSpec {
  def apply(node: JsonNode): ColumnSpec = ColumnSpec(
    node.get("name").asText,
    node.get("text").asText,
    node.get("base").asText,
    node.get("nullable").asBoolean,
    each(node.get("numbers")).map(_.asInt),
    each(node.get("names")).map(_.asText),
    each(node.get("inner")).map(apply)
  )

  private def each(list: JsonNode): Array[JsonNode] = Array.tabulate(list.size)(list.get)
}

/** Converts values to one ClickHouse type. Each method converts a field's value of one kind, and returns the converted
  * value or a ConversionError. A converted value is of `sqlType`, the type that carries it through Spark and Arrow
  * without a loss.
  */
abstract class Converter(val is: ColumnSpec) {
  import Converter._

  def sqlType: DataType

  /** The expected JSON value, for an error message. */
  protected def wanted: String

  def text(value: UTF8String): Any = not("string")
  def integer(value: Long): Any = not("number")
  def number(value: Number): Any = not("number")
  def truth(value: Boolean): Any = not("bool")

  /** A value of a field of the kind uint. */
  def whole(value: Number): Any = number(value)

  /** A value of a field of the kind float. Its decimal digits are the shortest ones that identify the double. */
  def real(value: Double): Any =
    if (value.isNaN || value.isInfinite) ConversionError(s"$value is not a number") else number(shortest(value))

  /** An array, or the members of an object, whose first token the parser has just read; json: the bytes it reads. */
  protected def array(parser: JsonParser, json: Array[Byte]): Any = not("array")
  protected def members(parser: JsonParser, json: Array[Byte]): Any = not("object")

  /** A number inside a nested value. */
  protected def jsonNumber(parser: JsonParser): Any =
    if (isLong(parser)) integer(parser.getLongValue) else number(StrictJson.decimalValue(parser))

  /** The name of an object's member, as a Map's key. */
  def key(name: UTF8String): Any = text(name)

  def ofNull: Any = if (is.nullable) null else ConversionError("null, but the column is not Nullable")

  /** A value of a field of the kind array or map, as JSON text. */
  def jsonText(value: UTF8String): Any = jsonValue(value)

  /** A value of a field of the kind any, as JSON text: converted like a value inside a nested one. */
  final def jsonValue(value: UTF8String): Any = {
    val bytes = value.getBytes
    if (!StrictJson.isUtf8Json(bytes)) return ConversionError("invalid JSON: not in UTF-8")
    val parser = StrictJson.FACTORY.createParser(bytes)
    try {
      parser.nextToken()
      val found = json(parser, bytes)
      if (!found.isInstanceOf[ConversionError] && parser.nextToken() != null)
        ConversionError("invalid JSON: something follows its end")
      else found
    } catch {
      case e: com.fasterxml.jackson.core.JsonProcessingException =>
        ConversionError(s"invalid JSON: ${e.getOriginalMessage.takeWhile(_ != '\n')}")
    } finally parser.close()
  }

  /** The value at the parser's position, inside a nested value. */
  final def json(parser: JsonParser, bytes: Array[Byte]): Any = parser.currentToken() match {
    case JsonToken.VALUE_NULL => if (is.nullable) null else ConversionError(s"null, but ${is.text} is not Nullable")
    case JsonToken.VALUE_STRING => jsonString(parser) match {
        case Some(string) => text(string)
        case None => HALF_CHARACTER
      }
    case JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT => jsonNumber(parser)
    case JsonToken.VALUE_TRUE => truth(true)
    case JsonToken.VALUE_FALSE => truth(false)
    case JsonToken.START_ARRAY => array(parser, bytes)
    case JsonToken.START_OBJECT => members(parser, bytes)
    case _ => ConversionError("invalid JSON: a value is missing")
  }

  private def not(got: String): ConversionError = ConversionError(s"expected $wanted, got $got")
}

object Converter {
  val HALF_CHARACTER: ConversionError = ConversionError("holds half a surrogate pair, which is not a character")

  // The most characters of a value in a reason, and of a name in a path.
  private val SHOWN_CHARACTERS = 100
  private val NAME_CHARACTERS = 40

  def apply(is: ColumnSpec): Converter = is.name match {
    case "Int8" | "Int16" | "Int32" | "Int64" | "UInt8" | "UInt16" | "UInt32" | "UInt64" => new Integers(is)
    case "Int128" | "Int256" | "UInt128" | "UInt256" => new BigIntegers(is)
    case "Float32" | "Float64" => new Floats(is)
    case "Decimal" => new Decimals(is)
    case "Bool" => new Bools(is)
    case "String" => new Strings(is)
    case "FixedString" => new FixedStrings(is)
    case "UUID" => new Uuids(is)
    case "Enum8" | "Enum16" => new Enums(is)
    case "IPv4" => new IPv4s(is)
    case "IPv6" => new IPv6s(is)
    case "Date" | "Date32" => new Dates(is)
    case "DateTime" | "DateTime64" => new Times(is)
    case "Array" => new Arrays(is)
    case "Map" => new Maps(is)
    case "Tuple" => new Tuples(is)
    case "JSON" => new JsonObjects(is)
  }

  def quoted(value: UTF8String): String = s"'${value.substring(0, SHOWN_CHARACTERS)}'"

  def shown(number: Any): String = {
    val digits = number.toString
    if (digits.length <= SHOWN_CHARACTERS) digits else digits.take(SHOWN_CHARACTERS) + "..."
  }

  /** The path of an object's member. */
  def memberPath(name: String): String =
    if (name.length <= NAME_CHARACTERS) "." + name else "." + name.take(NAME_CHARACTERS) + "..."

  def isLong(parser: JsonParser): Boolean =
    parser.currentToken() == JsonToken.VALUE_NUMBER_INT && parser.getNumberType != JsonParser.NumberType.BIG_INTEGER

  /** A JSON string; None where it has half a surrogate pair, which UTF-8 cannot encode. */
  def jsonString(parser: JsonParser): Option[UTF8String] = {
    val string = parser.getText
    if (isWhole(string)) Some(UTF8String.fromString(string)) else None
  }

  /** Whether a string can be encoded in UTF-8: it has no half of a surrogate pair. */
  def isWhole(string: String): Boolean = !string.exists(_.isSurrogate) || UTF_8.newEncoder().canEncode(string)

  /** The JSON text from where an array or object begins to its end; moves the parser there. */
  def rawText(parser: JsonParser, json: Array[Byte]): UTF8String = {
    val start = parser.currentTokenLocation().getByteOffset.toInt
    parser.skipChildren()
    UTF8String.fromBytes(json, start, parser.currentLocation().getByteOffset.toInt - start).copy()
  }

  /** The decimal number with the fewest digits that identifies this double. */
  def shortest(value: Double): Number = {
    val exact = new Number(value)
    // Up to 15 digits every decimal number survives a double, and 17 tell all doubles apart.
    val digits = (15 to 17).find(n => exact.round(new MathContext(n)).doubleValue == value).get
    exact.round(new MathContext(digits)).stripTrailingZeros
  }

  private val DECIMAL = java.util.regex.Pattern.compile("[+-]?(\\d+(\\.\\d*)?|\\.\\d+)([eE][+-]?\\d{1,9})?")
  private val LONGEST_NUMBER = 1000

  /** The number that a text denotes, null where it is none. */
  def numberOf(text: UTF8String): Number =
    if (text.numBytes > LONGEST_NUMBER || !DECIMAL.matcher(text.toString).matches) null
    else new Number(text.toString)

  /** The number of digits before the point, at most, without expanding a number such as 1e2147483647. */
  def leadingDigits(number: Number): Long = if (number.signum == 0) 0L else number.precision.toLong - number.scale

  /** The number as an integer, null where it has a fraction. Check `leadingDigits` first, as the number is expanded. */
  def integral(number: Number): BigInteger = {
    val shortest = number.stripTrailingZeros
    if (shortest.scale > 0) null else shortest.toBigIntegerExact
  }
}

import Converter._

/** Whole numbers of up to 64 bits. Spark has no unsigned types: the next larger type carries them. */
class Integers(is: ColumnSpec) extends Converter(is) {
  private val bits = is.name.dropWhile(!_.isDigit).toInt
  private val signed = !is.name.startsWith("U")
  private val least: Long = if (signed) -1L << (bits - 1) else 0
  private val greatest: BigInteger = BigInteger.ONE.shiftLeft(if (signed) bits - 1 else bits).subtract(BigInteger.ONE)
  private val greatestLong: Long = greatest.min(BigInteger.valueOf(Long.MaxValue)).longValue

  override protected def wanted: String = "a whole number"

  override val sqlType: DataType = is.name match {
    case "Int8" => ByteType
    case "Int16" | "UInt8" => ShortType
    case "Int32" | "UInt16" => IntegerType
    case "Int64" | "UInt32" => LongType
    case "UInt64" => DecimalType(20, 0)
  }

  override def integer(value: Long): Any =
    if (value < least || value > greatestLong) outOfRange(value)
    else sqlType match {
      case ByteType => value.toByte
      case ShortType => value.toShort
      case IntegerType => value.toInt
      case LongType => value
      case _ => Decimal(Number.valueOf(value), 20, 0)
    }

  override def number(value: Number): Any =
    if (leadingDigits(value) > 20) outOfRange(value)
    else {
      val whole = integral(value)
      if (whole == null) ConversionError(s"expected a whole number, got ${shown(value)}")
      else if (whole.bitLength < 64) integer(whole.longValue)
      else if (whole.signum < 0 || whole.compareTo(greatest) > 0) outOfRange(value)
      else Decimal(new Number(whole), 20, 0)
    }

  override def key(name: UTF8String): Any = {
    val value = numberOf(name)
    if (value == null) ConversionError(s"${quoted(name)} is not a number") else number(value)
  }

  private def outOfRange(value: Any): ConversionError =
    ConversionError(s"${shown(value)} is out of range $least..$greatest")
}

/** Whole numbers of 128 and 256 bits, as ClickHouse's binary format: little-endian bytes. */
class BigIntegers(is: ColumnSpec) extends Converter(is) {
  private val bits = is.name.dropWhile(!_.isDigit).toInt
  private val signed = !is.name.startsWith("U")

  override protected def wanted: String = "a whole number"
  override val sqlType: DataType = BinaryType

  override def integer(value: Long): Any = bytes(BigInteger.valueOf(value))

  override def number(value: Number): Any =
    if (leadingDigits(value) > 78) outOfRange(value)
    else {
      val whole = integral(value)
      if (whole == null) ConversionError(s"expected a whole number, got ${shown(value)}") else bytes(whole)
    }

  override def text(value: UTF8String): Any = {
    val digits = numberOf(value)
    if (digits == null) ConversionError(s"${quoted(value)} is not a number") else number(digits)
  }

  private def bytes(value: BigInteger): Any =
    if (value.signum < 0 && !signed || value.bitLength > (if (signed) bits - 1 else bits)) outOfRange(value)
    else {
      val found = new Array[Byte](bits / 8)
      if (value.signum < 0) java.util.Arrays.fill(found, (-1).toByte)
      val big = value.toByteArray
      // Java's array has one byte more where the highest bit would be taken for a sign.
      var i = 0
      while (i < found.length && i < big.length) {
        found(i) = big(big.length - 1 - i)
        i += 1
      }
      found
    }

  private def outOfRange(value: Any): ConversionError =
    ConversionError(s"${shown(value)} is out of range of ${is.name}")
}

class Floats(is: ColumnSpec) extends Converter(is) {
  private val isSingle = is.name == "Float32"
  // Whole numbers up to here are exact as a float.
  private val exact = if (isSingle) 1L << 24 else 1L << 53

  override protected def wanted: String = "a number"
  override val sqlType: DataType = if (isSingle) FloatType else DoubleType

  override def real(value: Double): Any =
    if (isSingle && math.abs(value) > Float.MaxValue) ConversionError(s"$value is out of range of Float32")
    else if (isSingle) value.toFloat
    else value

  override def integer(value: Long): Any =
    if (value > exact || value < -exact) tooManyDigits(value) else real(value.toDouble)

  override def number(value: Number): Any = {
    val near = value.doubleValue
    if (near.isInfinite) ConversionError(s"${shown(value)} is out of range of ${is.name}") else real(near)
  }

  override def whole(value: Number): Any =
    if (value.compareTo(Number.valueOf(exact)) > 0) tooManyDigits(value) else number(value)

  /** A number inside a nested value is read as a double, like a field of the kind float. */
  override protected def jsonNumber(parser: JsonParser): Any = {
    val value = parser.getDoubleValue
    if (value.isInfinite) ConversionError(s"${shown(parser.getText)} is out of range of ${is.name}") else real(value)
  }

  override def key(name: UTF8String): Any = {
    val value = numberOf(name)
    if (value == null) ConversionError(s"${quoted(name)} is not a number") else number(value)
  }

  private def tooManyDigits(value: Any): ConversionError =
    ConversionError(s"${shown(value)} has more digits than ${is.name} holds")
}

/** Decimal(P, S): as Spark's decimal up to 38 digits, beyond that as text. */
class Decimals(is: ColumnSpec) extends Converter(is) {
  private val Array(precision, scale) = is.numbers
  private val isWide = precision > DecimalType.MAX_PRECISION

  override protected def wanted: String = "a number"
  override val sqlType: DataType = if (isWide) StringType else DecimalType(precision, scale)

  override def integer(value: Long): Any = number(Number.valueOf(value))

  override def number(value: Number): Any = {
    if (leadingDigits(value) > precision - scale)
      return ConversionError(s"${shown(value)} is out of range of ${is.base}")
    val shortest = if (value.signum == 0) Number.ZERO else value.stripTrailingZeros
    if (shortest.scale > scale) return ConversionError(s"${shown(value)} has more than $scale digits after the point")
    val scaled = shortest.setScale(scale)
    if (isWide) UTF8String.fromString(scaled.toPlainString) else Decimal(scaled, precision, scale)
  }

  override def text(value: UTF8String): Any = {
    val digits = numberOf(value)
    if (digits == null) ConversionError(s"${quoted(value)} is not a number") else number(digits)
  }
}

class Bools(is: ColumnSpec) extends Converter(is) {
  override protected def wanted: String = "bool"
  override def sqlType: DataType = BooleanType
  override def truth(value: Boolean): Any = value
  override def key(name: UTF8String): Any = name.toString match {
    case "true" => true
    case "false" => false
    case _ => ConversionError(s"${quoted(name)} is neither true nor false")
  }
}

/** Strings; an array or object becomes its JSON text. */
class Strings(is: ColumnSpec) extends Converter(is) {
  override protected def wanted: String = "string"
  override def sqlType: DataType = StringType
  override def text(value: UTF8String): Any = value
  override def jsonText(value: UTF8String): Any = value
  override protected def array(parser: JsonParser, json: Array[Byte]): Any = rawText(parser, json)
  override protected def members(parser: JsonParser, json: Array[Byte]): Any = rawText(parser, json)
}

class FixedStrings(is: ColumnSpec) extends Converter(is) {
  private val length = is.numbers.head
  override protected def wanted: String = "string"
  override def sqlType: DataType = StringType
  override def text(value: UTF8String): Any =
    if (value.numBytes <= length) value
    else ConversionError(s"${quoted(value)} is too long: ${value.numBytes} bytes are too many for ${is.base}")
}

class Uuids(is: ColumnSpec) extends Converter(is) {
  override protected def wanted: String = "a UUID"
  override def sqlType: DataType = StringType

  override def text(value: UTF8String): Any =
    if (isUuid(value)) value else ConversionError(s"${quoted(value)} is not a UUID")

  private def isUuid(value: UTF8String): Boolean = {
    if (value.numBytes != 36) return false
    var i = 0
    while (i < 36) {
      val byte = value.getByte(i)
      val right = if (i == 8 || i == 13 || i == 18 || i == 23) byte == '-' else Character.digit(byte.toChar, 16) >= 0
      if (byte < 0 || !right) return false
      i += 1
    }
    true
  }
}

class Enums(is: ColumnSpec) extends Converter(is) {
  private val names: java.util.Set[UTF8String] = new java.util.HashSet(is.names.length * 2)
  is.names.foreach(name => names.add(UTF8String.fromString(name)))

  override protected def wanted: String = "string"
  override def sqlType: DataType = StringType
  override def text(value: UTF8String): Any =
    if (names.contains(value)) value
    else ConversionError(
      s"${quoted(value)} is not one of ${is.names.take(10).mkString(", ")}${if (is.names.length > 10) " ..." else ""}"
    )
}

class Dates(is: ColumnSpec) extends Converter(is) {
  private val (first, last) = if (is.name == "Date") ("1970-01-01", "2149-06-06") else ("1900-01-01", "2299-12-31")
  private val (firstDay, lastDay) =
    (Instants.parseDay(UTF8String.fromString(first)), Instants.parseDay(UTF8String.fromString(last)))

  override protected def wanted: String = "a date such as \"2024-10-28\""
  override def sqlType: DataType = DateType
  override def text(value: UTF8String): Any = {
    val day = Instants.parseDay(value)
    if (day == null || day < firstDay || day > lastDay)
      ConversionError(s"${quoted(value)} is not a date from $first to $last")
    else day.intValue
  }
}

/** DateTime and DateTime64, from texts (see Instants) and from numbers, as seconds since 1970. Digits of the fraction
  * that the column does not have are cut off. Up to 6 digits a Spark timestamp carries the value; more digits come as a
  * decimal number of seconds.
  */
class Times(is: ColumnSpec) extends Converter(is) {
  private val digits = if (is.name == "DateTime") 0 else is.numbers.head
  private val (first, last) = {
    // The range of the types, from ClickHouse's documentation.
    val (from, until) = if (is.name == "DateTime") (0L, (1L << 32) - 1) else (-2208988800L, 10413791999L)
    // ClickHouse stores the number of the column's fractions of a second in 64 bits: nanoseconds end in 2262.
    (from, math.min(until, Long.MaxValue / pow10(digits) - 1))
  }
  // The nanoseconds of the column's last digit.
  private val nanosUnit = pow10(9 - digits)

  override protected def wanted: String = "a time"
  override val sqlType: DataType = if (digits <= 6) TimestampType else DecimalType(20, digits)

  override def text(value: UTF8String): Any = {
    val time = Instants.parse(value)
    if (time == null) error(quoted(value)) else at(time.seconds, time.nanos, quoted(value))
  }

  override def integer(value: Long): Any = at(value, 0, s"'$value'")

  override def real(value: Double): Any =
    if (!(value >= first && value < last + 1.0)) error(s"'$value'")
    else {
      // Doubles of this size are exact to about a microsecond.
      val micros = new Number(value * 1000000).setScale(0, java.math.RoundingMode.HALF_UP).longValue
      at(Math.floorDiv(micros, 1000000L), Math.floorMod(micros, 1000000L).toInt * 1000, s"'$value'")
    }

  override def number(value: Number): Any = {
    // Checked first, so that a number such as 1e-2147483647 is not expanded.
    if (leadingDigits(value) > 11 || value.scale > 1000) return error(s"'${shown(value)}'")
    val nanos = value.setScale(9, java.math.RoundingMode.FLOOR).unscaledValue.divideAndRemainder(BILLION)
    val before = nanos(1).signum < 0
    val seconds = nanos(0).longValue - (if (before) 1 else 0)
    at(seconds, nanos(1).intValue + (if (before) 1000000000 else 0), s"'${shown(value)}'")
  }

  private def at(seconds: Long, nanos: Int, shown: => String): Any =
    if (seconds < first || seconds > last) error(shown)
    else {
      val kept = nanos - nanos % nanosUnit
      if (digits <= 6) seconds * 1000000 + kept / 1000
      else Decimal(Number.valueOf(seconds).add(Number.valueOf(kept, 9)).setScale(digits), 20, digits)
    }

  private def error(shown: String): ConversionError =
    ConversionError(s"$shown is not a time that ${is.base} holds (write 2024-10-28T10:00:05Z, or seconds since 1970)")

  private def pow10(n: Int): Long = Number.ONE.scaleByPowerOfTen(n).longValueExact
  private def BILLION: BigInteger = BigInteger.valueOf(1000000000L)
}

/** IPv4 addresses, as the number that their four bytes form. */
class IPv4s(is: ColumnSpec) extends Converter(is) {
  override protected def wanted: String = "an IPv4 address"
  override def sqlType: DataType = LongType
  override def text(value: UTF8String): Any = {
    val address = Addresses.v4(value.toString)
    if (address < 0) ConversionError(s"${quoted(value)} is not an IPv4 address") else address
  }
}

/** IPv6 addresses, as 16 bytes; an IPv4 address becomes ::ffff:a.b.c.d, as in ClickHouse. */
class IPv6s(is: ColumnSpec) extends Converter(is) {
  override protected def wanted: String = "an IPv6 address"
  override def sqlType: DataType = BinaryType
  override def text(value: UTF8String): Any = {
    val address = Addresses.v6(value.toString)
    if (address == null) ConversionError(s"${quoted(value)} is not an IPv6 address") else address
  }
}

/** Parses addresses. Java's own parser would ask a name server for a text that is no address. */
object Addresses {
  private val LONGEST = 45
  private val GROUPS = 8

  /** The address as a number, -1 where the text is none. A leading zero, which some programs read as octal, is invalid.
    */
  def v4(text: String): Long = {
    val parts = if (text.length > 15) Array.empty[String] else text.split("\\.", -1)
    val good = parts.length == 4 && parts.forall(p => p.matches("0|[1-9]\\d{0,2}") && p.toInt <= 255)
    if (good) parts.foldLeft(0L)((sum, part) => sum * 256 + part.toInt) else -1
  }

  /** The address as 16 bytes, null where the text is none. */
  def v6(text: String): Array[Byte] = {
    if (text.length > LONGEST) return null
    if (!text.contains(':')) return if (v4(text) < 0) null else v6("::ffff:" + text)
    val gap = text.indexOf("::")
    if (gap < 0) bytes(groups(text), GROUPS)
    else if (text.indexOf("::", gap + 1) >= 0) null
    else {
      val (before, after) = (groups(text.substring(0, gap)), groups(text.substring(gap + 2)))
      if (
        before == null || after == null || before.length + after.length >= GROUPS || text.substring(0, gap).contains(
          '.'
        )
      ) null
      else bytes(before ++ Array.fill(GROUPS - before.length - after.length)(0) ++ after, GROUPS)
    }
  }

  /** The 16-bit groups of a text without `::`, whose last two may be an IPv4 address; null where one is invalid. */
  private def groups(text: String): Array[Int] =
    if (text.isEmpty) Array.empty
    else {
      val parts = text.split(":", -1)
      val tail = if (parts.last.contains('.')) v4(parts.last) else -1L
      val plain = if (tail >= 0) parts.init else parts
      if (!plain.forall(_.matches("[0-9a-fA-F]{1,4}"))) null
      else plain.map(Integer.parseInt(_, 16)) ++ (if (tail >= 0) Array((tail >> 16).toInt, (tail & 0xffff).toInt)
                                                  else Array.empty[Int])
    }

  private def bytes(groups: Array[Int], count: Int): Array[Byte] =
    if (groups == null || groups.length != count) null else groups.flatMap(g => Array((g >> 8).toByte, g.toByte))
}
