package glassflow

import java.math.{BigDecimal => Number, BigInteger, MathContext}

import com.fasterxml.jackson.core.{JsonParser, JsonToken}
import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.unsafe.types.UTF8String

/** The result for a value that does not fit its column; path: where it is inside a nested value, such as `[3].a`. */
final case class ConversionError(problem: String, path: String = "") {

  /** The same error, seen from the enclosing value. */
  def in(outer: String): ConversionError = copy(path = outer + path)
  def message: String = if (path.isEmpty) problem else s"${path.stripPrefix(".")}: $problem"
}

/** A ClickHouse type, as Python describes it (stream/stages/mapping_in_scala.py).
  *
  * name: the type's name without parameters, Nullable and LowCardinality; text: the whole type; base: the whole type
  * without Nullable and LowCardinality; numbers: a length, precision and scale, digits after the second, or those of an
  * Enum's values; names: those of an Enum's values, a Tuple's elements or a JSON column's typed paths; inner: the types
  * of elements.
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

/** Converts values to one ClickHouse type. Each method converts a field's value of one kind, and writes it in the
  * format RowBinary; it returns null, or a ConversionError, and what it has written before that is of no use.
  */
abstract class Converter(val is: ColumnSpec) {
  import Converter._

  /** The expected JSON value, for an error message. */
  protected def wanted: String

  /** Write the value of a field of each kind, without the byte before a value of a Nullable column. */
  protected def putText(value: UTF8String, out: RowBinary): ConversionError = not("string")
  protected def putInteger(value: Long, out: RowBinary): ConversionError = not("number")
  protected def putNumber(value: Number, out: RowBinary): ConversionError = not("number")
  protected def putTruth(value: Boolean, out: RowBinary): ConversionError = not("bool")

  /** A value of a field of the kind uint. */
  protected def putWhole(value: Number, out: RowBinary): ConversionError = putNumber(value, out)

  /** A value of a field of the kind float. Its decimal digits are the shortest ones that identify the double. */
  protected def putReal(value: Double, out: RowBinary): ConversionError =
    if (value.isNaN || value.isInfinite) ConversionError(s"$value is not a number") else putNumber(shortest(value), out)

  /** An array, or the members of an object, whose first token the parser has just read; json: the bytes it reads. */
  protected def putArray(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError = not("array")
  protected def putMembers(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError = not("object")

  /** A number inside a nested value. */
  protected def putJsonNumber(parser: JsonParser, out: RowBinary): ConversionError =
    if (isLong(parser)) putInteger(parser.getLongValue, out) else putNumber(StrictJson.decimalValue(parser), out)

  /** The name of an object's member, as a Map's key, which cannot be Nullable. */
  def key(name: UTF8String, out: RowBinary): ConversionError = putText(name, out)

  def text(value: UTF8String, out: RowBinary): ConversionError = {
    notNull(out)
    putText(value, out)
  }

  final def integer(value: Long, out: RowBinary): ConversionError = {
    notNull(out)
    putInteger(value, out)
  }

  final def number(value: Number, out: RowBinary): ConversionError = {
    notNull(out)
    putNumber(value, out)
  }

  final def truth(value: Boolean, out: RowBinary): ConversionError = {
    notNull(out)
    putTruth(value, out)
  }

  final def whole(value: Number, out: RowBinary): ConversionError = {
    notNull(out)
    putWhole(value, out)
  }

  final def real(value: Double, out: RowBinary): ConversionError = {
    notNull(out)
    putReal(value, out)
  }

  /** A value of a field of the kind array or map, as JSON text. */
  def jsonText(value: UTF8String, out: RowBinary): ConversionError = jsonValue(value, out)

  /** A value of a field of the kind any, as JSON text: converted like a value inside a nested one. */
  final def jsonValue(value: UTF8String, out: RowBinary): ConversionError = {
    val bytes = value.getBytes
    val badBytes = Utf8.problemOfJson(bytes)
    if (badBytes != null) return ConversionError(badBytes)
    val parser = StrictJson.FACTORY.createParser(bytes)
    try {
      parser.nextToken()
      val error = json(parser, bytes, out)
      if (error == null && parser.nextToken() != null) ConversionError("invalid JSON: something follows its end")
      else error
    } catch {
      case e: com.fasterxml.jackson.core.JsonProcessingException => ConversionError(JsonProblem.of(e))
    } finally parser.close()
  }

  def ofNull(out: RowBinary): ConversionError =
    if (is.nullable) {
      out.isNull(true)
      null
    } else ConversionError(s"null, but the column is not Nullable ($nullRemedy)")

  /** What to do about null in a column that takes none. */
  protected def nullRemedy: String = "make it so, give the field a default, or output field ?? VALUE in a transform"

  /** The value at the parser's position, inside a nested value. */
  final def json(parser: JsonParser, bytes: Array[Byte], out: RowBinary): ConversionError =
    parser.currentToken() match {
      case JsonToken.VALUE_NULL =>
        if (is.nullable) ofNull(out) else ConversionError(s"null, but ${is.text} is not Nullable")
      case JsonToken.VALUE_STRING => jsonString(parser) match {
          case Some(string) => text(string, out)
          case None => HALF_CHARACTER
        }
      case _ =>
        notNull(out)
        put(parser, bytes, out)
    }

  /** The same, where it is neither null nor a string. */
  private def put(parser: JsonParser, bytes: Array[Byte], out: RowBinary): ConversionError =
    parser.currentToken() match {
      case JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT => putJsonNumber(parser, out)
      case JsonToken.VALUE_TRUE => putTruth(true, out)
      case JsonToken.VALUE_FALSE => putTruth(false, out)
      case JsonToken.START_ARRAY => putArray(parser, bytes, out)
      case JsonToken.START_OBJECT => putMembers(parser, bytes, out)
      case _ => ConversionError("invalid JSON: a value is missing")
    }

  protected final def notNull(out: RowBinary): Unit = if (is.nullable) out.isNull(false)

  protected final def not(got: String): ConversionError = ConversionError(s"expected $wanted, got $got")
}

object Converter {
  val HALF_CHARACTER: ConversionError = ConversionError("holds half a surrogate pair, which is not a character")

  val OUTPUT_NUMBER = "bool (output b ? 1 : 0 in a transform)"
  val OUTPUT_BOOL = "number (output n == 1 in a transform)"

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

  /** The ConversionError for a number with a point or an exponent that no double stands for, else null. */
  def floatError(parser: JsonParser): ConversionError = {
    val value = parser.getDoubleValue
    if (value.isInfinite) ConversionError(s"${shown(parser.getText)} does not fit into a 64-bit float")
    else Option(Floats.loss(parser.getText, value, "a 64-bit float")).map(ConversionError(_)).orNull
  }

  /** A JSON string; None where it has half a surrogate pair, which UTF-8 cannot encode. */
  def jsonString(parser: JsonParser): Option[UTF8String] = {
    val string = parser.getText
    if (Utf8.hasForm(string)) Some(UTF8String.fromString(string)) else None
  }

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

/** Whole numbers of up to 64 bits. */
class Integers(is: ColumnSpec) extends Converter(is) {
  private val bits = is.name.dropWhile(!_.isDigit).toInt
  private val signed = !is.name.startsWith("U")
  private val least: Long = if (signed) -1L << (bits - 1) else 0
  private val greatest: BigInteger = BigInteger.ONE.shiftLeft(if (signed) bits - 1 else bits).subtract(BigInteger.ONE)
  private val greatestLong: Long = greatest.min(BigInteger.valueOf(Long.MaxValue)).longValue

  override protected def wanted: String = "a whole number"
  override protected def putTruth(value: Boolean, out: RowBinary): ConversionError = not(OUTPUT_NUMBER)

  override protected def putInteger(value: Long, out: RowBinary): ConversionError =
    if (value < least || value > greatestLong) outOfRange(value)
    else {
      bits match {
        case 8 => out.int8(value.toInt)
        case 16 => out.int16(value.toInt)
        case 32 => out.int32(value.toInt)
        case _ => out.int64(value)
      }
      null
    }

  override protected def putNumber(value: Number, out: RowBinary): ConversionError =
    if (leadingDigits(value) > 20) outOfRange(value)
    else {
      val whole = integral(value)
      if (whole == null) ConversionError(s"expected a whole number, got ${shown(value)}")
      else if (whole.bitLength < 64) putInteger(whole.longValue, out)
      else if (whole.signum < 0 || whole.compareTo(greatest) > 0) outOfRange(value)
      else {
        out.int64(whole.longValue)
        null
      }
    }

  override def key(name: UTF8String, out: RowBinary): ConversionError = {
    val value = numberOf(name)
    if (value == null) ConversionError(s"${quoted(name)} is not a number") else putNumber(value, out)
  }

  private def outOfRange(value: Any): ConversionError =
    ConversionError(s"${shown(value)} is out of range $least..$greatest")
}

/** Whole numbers of 128 and 256 bits. */
class BigIntegers(is: ColumnSpec) extends Converter(is) {
  private val bits = is.name.dropWhile(!_.isDigit).toInt
  private val signed = !is.name.startsWith("U")

  override protected def wanted: String = "a whole number"
  override protected def putTruth(value: Boolean, out: RowBinary): ConversionError = not(OUTPUT_NUMBER)

  override protected def putInteger(value: Long, out: RowBinary): ConversionError = put(BigInteger.valueOf(value), out)

  override protected def putNumber(value: Number, out: RowBinary): ConversionError =
    if (leadingDigits(value) > 78) outOfRange(value)
    else {
      val whole = integral(value)
      if (whole == null) ConversionError(s"expected a whole number, got ${shown(value)}") else put(whole, out)
    }

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError = {
    val digits = numberOf(value)
    if (digits == null) ConversionError(s"${quoted(value)} is not a number") else putNumber(digits, out)
  }

  private def put(value: BigInteger, out: RowBinary): ConversionError =
    if (value.signum < 0 && !signed || value.bitLength > (if (signed) bits - 1 else bits)) outOfRange(value)
    else {
      out.integer(value, bits / 8)
      null
    }

  private def outOfRange(value: Any): ConversionError =
    ConversionError(s"${shown(value)} is out of range of ${is.name}")
}

/** Floats. A number is rounded to the nearest one, but a whole number must keep its digits, and no number but 0 may
  * become 0.
  */
class Floats(is: ColumnSpec) extends Converter(is) {
  private val isSingle = is.name == "Float32"

  override protected def wanted: String = "a number"

  override protected def putReal(value: Double, out: RowBinary): ConversionError =
    if (!isSingle) {
      out.int64(java.lang.Double.doubleToRawLongBits(value))
      null
    } else {
      val near = value.toFloat
      // Up to here a double tells whole numbers; greater ones may be floats as well.
      val isWhole = math.abs(value) <= Floats.EXACT && value == Math.rint(value)
      if (near.isInfinite && !value.isInfinite) outOfRange(value)
      else if (isWhole && near != value) ConversionError(Floats.tooLong(value.toLong.toString, "Float32"))
      else if (near == 0 && value != 0) ConversionError(Floats.tooSmall(value.toString, "Float32"))
      else {
        out.int32(java.lang.Float.floatToRawIntBits(near))
        null
      }
    }

  override protected def putInteger(value: Long, out: RowBinary): ConversionError =
    put(value.toString, value.toDouble, out)

  override protected def putNumber(value: Number, out: RowBinary): ConversionError =
    put(value.toString, value.doubleValue, out)

  /** A number inside a nested value is read as a double, like a field of the kind float. */
  override protected def putJsonNumber(parser: JsonParser, out: RowBinary): ConversionError =
    put(parser.getText, parser.getDoubleValue, out)

  override def key(name: UTF8String, out: RowBinary): ConversionError = {
    val value = numberOf(name)
    if (value == null) ConversionError(s"${quoted(name)} is not a number") else putNumber(value, out)
  }

  /** Write a number that was written like this, and whose nearest double this is. */
  private def put(written: => String, near: Double, out: RowBinary): ConversionError = {
    val kept = if (isSingle) near.toFloat.toDouble else near
    if (kept.isInfinite) outOfRange(written)
    else {
      val loss = Floats.loss(written, kept, is.name)
      if (loss == null) putReal(near, out) else ConversionError(loss)
    }
  }

  private def outOfRange(value: Any): ConversionError =
    ConversionError(s"${shown(value)} is out of range of ${is.name}")
}

object Floats {

  // Whole numbers up to here are exact as a double, and up to the other one as a float of 32 bits.
  val EXACT: Double = (1L << 53).toDouble
  private val EXACT_SINGLE = (1 << 24).toDouble

  /** What a number loses as a float, for a reason; null where it is at most rounded as a fraction is.
    *
    * @param written
    *   the number as JSON; a whole number is one without a point and an exponent
    * @param kept
    *   the float
    * @param name
    *   of the float's type
    */
  def loss(written: => String, kept: Double, name: String): String =
    if (kept != 0 && math.abs(kept) < (if (name == "Float32") EXACT_SINGLE else EXACT)) null
    else {
      val number = written
      if (kept == 0) if (isZero(number)) null else tooSmall(number, name)
      else if (isWhole(number) && new Number(kept).compareTo(new Number(number)) != 0) tooLong(number, name)
      else null
    }

  def tooLong(number: String, name: String): String = {
    val remedy = name match {
      case "Float32" => "use Float64"
      case "Float64" => "use Int64 or Decimal"
      case _ => "declare it as int, uint or decimal"
    }
    s"${shown(number)} has more digits than $name holds ($remedy)"
  }

  def tooSmall(number: String, name: String): String =
    s"${shown(number)} is too small for $name, which would make it 0${if (name == "Float32") " (use Float64)" else ""}"

  private def isWhole(number: String): Boolean = number.forall(c => c >= '0' && c <= '9' || c == '-')

  private def isZero(number: String): Boolean =
    !number.iterator.takeWhile(c => c != 'e' && c != 'E').exists(c => c >= '1' && c <= '9')
}

/** Decimal(P, S): the number without its point, in as many bytes as its precision needs. */
class Decimals(is: ColumnSpec) extends Converter(is) {
  private val Array(precision, scale) = is.numbers
  private val size = Decimals.size(precision)

  override protected def wanted: String = "a number"

  override protected def putInteger(value: Long, out: RowBinary): ConversionError =
    putNumber(Number.valueOf(value), out)

  override protected def putNumber(value: Number, out: RowBinary): ConversionError = {
    if (leadingDigits(value) > precision - scale)
      return ConversionError(s"${shown(value)} is out of range of ${is.base}")
    val shortest = if (value.signum == 0) Number.ZERO else value.stripTrailingZeros
    if (shortest.scale > scale) return ConversionError(s"${shown(value)} has more than $scale digits after the point")
    out.integer(shortest.setScale(scale).unscaledValue, size)
    null
  }

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError = {
    val digits = numberOf(value)
    if (digits == null) ConversionError(s"${quoted(value)} is not a number") else putNumber(digits, out)
  }
}

object Decimals {

  /** The bytes of a Decimal of this precision. */
  def size(precision: Int): Int = if (precision <= 9) 4 else if (precision <= 18) 8 else if (precision <= 38) 16 else 32
}

class Bools(is: ColumnSpec) extends Converter(is) {
  override protected def wanted: String = "bool"
  override protected def putInteger(value: Long, out: RowBinary): ConversionError = not(OUTPUT_BOOL)

  override protected def putTruth(value: Boolean, out: RowBinary): ConversionError = {
    out.int8(if (value) 1 else 0)
    null
  }

  override def key(name: UTF8String, out: RowBinary): ConversionError = name.toString match {
    case "true" => putTruth(true, out)
    case "false" => putTruth(false, out)
    case _ => ConversionError(s"${quoted(name)} is neither true nor false")
  }
}

/** Strings; an array or object becomes its JSON text. */
class Strings(is: ColumnSpec) extends Converter(is) {
  override protected def wanted: String = "string"

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError = {
    out.text(value)
    null
  }

  override def jsonText(value: UTF8String, out: RowBinary): ConversionError = text(value, out)

  override protected def putArray(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError =
    putText(rawText(parser, json), out)

  override protected def putMembers(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError =
    putText(rawText(parser, json), out)
}

/** FixedString(N): a shorter text is followed by zeros, as in ClickHouse. */
class FixedStrings(is: ColumnSpec) extends Converter(is) {
  private val length = is.numbers.head
  override protected def wanted: String = "string"

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError =
    if (value.numBytes <= length) {
      out.raw(value)
      out.zeros(length - value.numBytes)
      null
    } else ConversionError(s"${quoted(value)} is too long: ${value.numBytes} bytes are too many for ${is.base}")
}

/** UUIDs, from their text, with the four dashes or, as in ClickHouse, without them: its first 16 digits and its last
  * 16, each as a number of 64 bits.
  */
class Uuids(is: ColumnSpec) extends Converter(is) {
  import Uuids._

  override protected def wanted: String = "a UUID"

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError = {
    val hasDashes = value.numBytes == LENGTH
    if ((hasDashes || value.numBytes == DIGITS) && isUuid(value, hasDashes)) {
      val middle = if (hasDashes) MIDDLE else DIGITS / 2
      out.int64(half(value, 0, middle))
      out.int64(half(value, middle, value.numBytes))
      null
    } else ConversionError(s"${quoted(value)} is not a UUID (32 hexadecimal digits, grouped 8-4-4-4-12 or not at all)")
  }

  private def isUuid(value: UTF8String, hasDashes: Boolean): Boolean = {
    var i = 0
    while (i < value.numBytes) {
      val byte = value.getByte(i)
      val isDash = hasDashes && (i == 8 || i == 13 || i == 18 || i == 23)
      if (byte < 0 || (if (isDash) byte != '-' else Character.digit(byte.toChar, 16) < 0)) return false
      i += 1
    }
    true
  }

  /** The hexadecimal digits from `start` until `end`, without dashes. */
  private def half(value: UTF8String, start: Int, end: Int): Long = {
    var (number, i) = (0L, start)
    while (i < end) {
      val byte = value.getByte(i)
      if (byte != '-') number = number << 4 | Character.digit(byte.toChar, 16)
      i += 1
    }
    number
  }
}

object Uuids {
  // The characters of a UUID with dashes, where its second half begins (with a dash), and its digits.
  private final val LENGTH = 36
  private final val MIDDLE = 18
  private final val DIGITS = 32
}

class Enums(is: ColumnSpec) extends Converter(is) {
  private val isWide = is.name == "Enum16"
  private val numbers = new java.util.HashMap[UTF8String, Int](is.names.length * 2)
  is.names.zip(is.numbers).foreach { case (name, number) => numbers.put(UTF8String.fromString(name), number) }

  override protected def wanted: String = "string"

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError =
    if (numbers.containsKey(value)) {
      if (isWide) out.int16(numbers.get(value)) else out.int8(numbers.get(value))
      null
    } else ConversionError(
      s"${quoted(value)} is not one of ${is.names.take(10).mkString(", ")}${if (is.names.length > 10) " ..." else ""}"
    )
}

/** Dates, as the number of days since 1970. */
class Dates(is: ColumnSpec) extends Converter(is) {
  private val isShort = is.name == "Date"
  private val (first, last) = if (isShort) ("1970-01-01", "2149-06-06") else ("1900-01-01", "2299-12-31")
  private val (firstDay, lastDay) =
    (Instants.parseDay(UTF8String.fromString(first)), Instants.parseDay(UTF8String.fromString(last)))

  override protected def wanted: String = "a date such as \"2024-10-28\""

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError = {
    val day = Instants.parseDay(value)
    if (day == null && hasTime(value))
      ConversionError(
        s"${quoted(value)} has a time of day, which ${is.name} does not keep (output field[:10] in a transform)"
      )
    else if (day == null || day < firstDay || day > lastDay)
      ConversionError(s"${quoted(value)} is not a date from $first to $last")
    else {
      if (isShort) out.int16(day.toInt) else out.int32(day.toInt)
      null
    }
  }

  /** Whether it is a time whose first ten characters are a date. */
  private def hasTime(value: UTF8String): Boolean =
    Instants.parseDay(value.substring(0, 10)) != null && Instants.parse(value) != null
}

/** DateTime and DateTime64, from texts (see Instants) and from numbers, as seconds since 1970. Digits of the fraction
  * that the column does not have are cut off. A DateTime is a number of seconds, a DateTime64 one of the column's last
  * digits, since 1970.
  */
class Times(is: ColumnSpec) extends Converter(is) {
  private val isShort = is.name == "DateTime"
  private val digits = if (isShort) 0 else is.numbers.head
  private val (first, last) = {
    // The range of the types, from ClickHouse's documentation.
    val (from, until) = if (isShort) (0L, (1L << 32) - 1) else (-2208988800L, 10413791999L)
    // ClickHouse stores the number of the column's fractions of a second in 64 bits: nanoseconds end in 2262.
    (from, math.min(until, Long.MaxValue / pow10(digits) - 1))
  }
  private val unitsPerSecond = pow10(digits)
  // The nanoseconds of the column's last digit.
  private val nanosUnit = pow10(9 - digits)

  override protected def wanted: String = "a time"

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError = {
    val time = Instants.parse(value)
    if (time == null) error(quoted(value)) else put(time.seconds, time.nanos, out, quoted(value), "")
  }

  override protected def putInteger(value: Long, out: RowBinary): ConversionError =
    if (value > last) outside(s"'$value'", s"${Times.remedy(value)}$SECONDS")
    else put(value, 0, out, s"'$value'", SECONDS)

  override protected def putReal(value: Double, out: RowBinary): ConversionError =
    if (!(value >= first && value < last + 1.0)) outside(s"'$value'", SECONDS)
    else {
      // Doubles of this size are exact to about a microsecond.
      val micros = new Number(value * 1000000).setScale(0, java.math.RoundingMode.HALF_UP).longValue
      put(Math.floorDiv(micros, 1000000L), Math.floorMod(micros, 1000000L).toInt * 1000, out, s"'$value'", SECONDS)
    }

  override protected def putNumber(value: Number, out: RowBinary): ConversionError = {
    // Checked first, so that a number such as 1e-2147483647 is not expanded.
    if (leadingDigits(value) > 11 || value.scale > 1000) return outside(s"'${shown(value)}'", SECONDS)
    val nanos = value.setScale(9, java.math.RoundingMode.FLOOR).unscaledValue.divideAndRemainder(BILLION)
    val before = nanos(1).signum < 0
    val seconds = nanos(0).longValue - (if (before) 1 else 0)
    put(seconds, nanos(1).intValue + (if (before) 1000000000 else 0), out, s"'${shown(value)}'", SECONDS)
  }

  /** nanos: those after the second; shown, unit: the value, and what a number counts, for an error. */
  private def put(seconds: Long, nanos: Int, out: RowBinary, shown: => String, unit: String): ConversionError =
    if (seconds < first || seconds > last) outside(shown, unit)
    else {
      if (isShort) out.int32(seconds.toInt) else out.int64(seconds * unitsPerSecond + nanos / nanosUnit)
      null
    }

  private def error(shown: String): ConversionError =
    ConversionError(s"$shown is not a time that ${is.base} holds (write 2024-10-28T10:00:05Z, or seconds since 1970)")

  private def outside(shown: String, unit: String): ConversionError = ConversionError(
    s"$shown is not a time that ${is.base} holds ($unit${readable(first)} to ${readable(last)})"
  )

  private def readable(seconds: Long): String = java.time.Instant.ofEpochSecond(seconds).toString

  private def SECONDS = "seconds since 1970, "
  private def pow10(n: Int): Long = Number.ONE.scaleByPowerOfTen(n).longValueExact
  private def BILLION: BigInteger = BigInteger.valueOf(1000000000L)
}

object Times {
  // 2001 and 2100, in seconds since 1970.
  private final val FIRST = 1000000000L
  private final val LAST = 4102444800L
  private val FUNCTIONS = Seq(1000L -> "fromUnixMilli", 1000000L -> "fromUnixMicro", 1000000000L -> "fromUnixNano")

  /** What to do with a number that is such a time in milliseconds, microseconds or nanoseconds; empty for others. */
  def remedy(value: Long): String = FUNCTIONS.collectFirst {
    case (perSecond, function) if value / perSecond >= FIRST && value / perSecond <= LAST =>
      s"output $function(field) in a transform; "
  }.getOrElse("")
}

/** IPv4 addresses, as the number that their four bytes form. */
class IPv4s(is: ColumnSpec) extends Converter(is) {
  override protected def wanted: String = "an IPv4 address"

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError = {
    val address = Addresses.v4(value.toString)
    if (address < 0) ConversionError(s"${quoted(value)} is not an IPv4 address")
    else {
      out.int32(address.toInt)
      null
    }
  }
}

/** IPv6 addresses, as 16 bytes; an IPv4 address becomes ::ffff:a.b.c.d, as in ClickHouse. */
class IPv6s(is: ColumnSpec) extends Converter(is) {
  override protected def wanted: String = "an IPv6 address"

  override protected def putText(value: UTF8String, out: RowBinary): ConversionError = {
    val address = Addresses.v6(value.toString)
    if (address == null) ConversionError(s"${quoted(value)} is not an IPv6 address")
    else {
      out.raw(address, 0, address.length)
      null
    }
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
