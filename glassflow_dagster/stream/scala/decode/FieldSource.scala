package glassflow

import java.math.{BigDecimal, BigInteger}

import org.apache.spark.sql.types.Decimal
import org.apache.spark.unsafe.types.UTF8String

/** A value of a record in an encoding with types, which is read as the kind of field that is declared. Each method
  * reads it once, and throws Refusal where the value is of another type.
  */
trait FieldSource {
  def text: UTF8String
  def truth: Boolean
  def real: Double

  /** A number with all its digits. */
  def number: BigDecimal

  /** Whether `long` reads it, quicker than `number`. */
  def isLong: Boolean
  def long: Long

  def isArray: Boolean

  /** Whether it is an object in JSON. */
  def isObject: Boolean
  def json: UTF8String

  def refusal(wanted: String): Refusal
}

object FieldSource {

  /** A value, which is not null, as one of a field of this kind, in the types of StrictJson. */
  def convert(source: FieldSource, kind: String): Any = kind match {
    case "string" => source.text
    case "int" => if (source.isLong) source.long else long(source.number)
    case "uint" => unsigned(source.number)
    case "float" => source.real
    case "bool" => source.truth
    case "decimal" => digits(StrictJson.canonical(source.number), "more than 76 digits before or after the point")
    case "bigint" | "ubigint" =>
      val number = source.number
      digits(StrictJson.bigInteger(number, signed = kind == "bigint"), s"$number is no whole number of this type")
    case "array" => if (source.isArray) source.json else throw source.refusal("array")
    case "map" => if (source.isObject) source.json else throw source.refusal("map")
    case "any" => source.json
  }

  private def long(number: BigDecimal): java.lang.Long = StrictJson.wholeNumber(number) match {
    case Some(whole) if whole.bitLength < 64 => whole.longValue
    case Some(_) => throw new Refusal(s"$number does not fit into 64 bits")
    case None => throw new Refusal(s"expected int, got $number")
  }

  private def unsigned(number: BigDecimal): Decimal = StrictJson.wholeNumber(number) match {
    case Some(whole) if whole.signum < 0 => throw new Refusal(s"expected uint, got $number")
    case Some(whole) if whole.bitLength <= 64 => Decimal(new BigDecimal(whole), StrictJson.UINT_DIGITS, 0)
    case Some(_) => throw new Refusal(s"$number does not fit into 64 bits")
    case None => throw new Refusal(s"expected uint, got $number")
  }

  private def digits(found: Option[String], problem: String): UTF8String =
    UTF8String.fromString(found.getOrElse(throw new Refusal(problem)))

  // 76 digits before the point and 76 after it are 64 bytes.
  private final val MOST_DECIMAL_BYTES = 64
  private final val MOST_DECIMAL_DIGITS = 76

  /** A decimal of the bytes of a whole number, and how many of its digits are behind the point. Java needs quadratic
    * time for the digits of long numbers, and a text as long as the scale says; no column takes so many.
    */
  def decimal(bytes: Array[Byte], scale: Int): BigDecimal = {
    if (bytes.length > MOST_DECIMAL_BYTES) throw new Refusal(s"a decimal of ${bytes.length} bytes")
    if (scale > MOST_DECIMAL_DIGITS || scale < -MOST_DECIMAL_DIGITS)
      throw new Refusal(s"a decimal with the scale $scale")
    new BigDecimal(if (bytes.isEmpty) BigInteger.ZERO else new BigInteger(bytes), scale)
  }

  /** A number as a double that does not lose what it must keep. */
  def real(number: BigDecimal): Double = {
    val near = number.doubleValue
    val loss = Floats.loss(number.toString, near, "a 64-bit float")
    if (loss == null) near else throw new Refusal(loss)
  }

  def real(number: Long): Double =
    if (math.abs(number) < Floats.EXACT) number.toDouble else real(BigDecimal.valueOf(number))

  def requireFinite(value: Double): Unit =
    if (value.isNaN || value.isInfinite) throw new Refusal(s"$value is no number that JSON or a decimal can hold")

  /** The refusal of a field's value, which names the field; what is wrong with the encoding is not the field's fault.
    */
  def of(field: JsonField, problem: String): Refusal =
    new Refusal(if (problem.startsWith("invalid ")) problem else s"field '${field.name}': $problem")
}
