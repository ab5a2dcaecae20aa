package glassflow

import java.math.BigDecimal
import java.util.ArrayList

import com.fasterxml.jackson.core.{JsonParser, JsonProcessingException, JsonStreamContext, JsonToken}
import com.fasterxml.jackson.core.exc.StreamConstraintsException
import org.apache.spark.SparkThrowable
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types.{StringType, StructType, VariantType}
import org.apache.spark.types.variant.{VariantBuilder, VariantSizeLimitException, VariantUtil}
import org.apache.spark.unsafe.types.{UTF8String, VariantVal}

/** Reads JSON as a VARIANT that holds just what the text says, or says why there is none.
  *
  * Spark's own try_parse_json gives NULL for members of one name, for half a surrogate pair and for long texts, which
  * no expression can tell from a null; and it takes 1e400 for infinity, -0.0 for 0, and rounds numbers of many digits.
  */
object JsonVariant {

  /** One of the two is NULL. problem: with the path of the value that it is about. */
  val TYPE: StructType = new StructType().add("value", VariantType).add("problem", StringType)

  def parse(text: UTF8String): InternalRow =
    try row(read(text.getBytes), null)
    catch {
      case refusal: Refusal => row(null, refusal.getMessage)
      case error: StreamConstraintsException => row(null, StrictJson.beyondBounds(error))
      case _: JsonProcessingException => row(null, NOT_JSON)
      case _: VariantSizeLimitException =>
        row(null, s"an expression cannot hold JSON of more than ${VariantUtil.SIZE_LIMIT >> 20} MiB")
    }

  private final val NOT_JSON = "the value is not JSON"
  // Of a DECIMAL in a VARIANT.
  private final val DECIMAL_DIGITS = VariantUtil.MAX_DECIMAL16_PRECISION
  // So many digits tell all doubles apart.
  private final val DOUBLE_DIGITS = 17
  private val TWO = BigDecimal.valueOf(2)

  private def row(value: VariantVal, problem: String): InternalRow =
    new GenericInternalRow(Array[Any](value, UTF8String.fromString(problem)))

  private def read(json: Array[Byte]): VariantVal = {
    if (Utf8.problemOfJson(json) != null) throw new Refusal(NOT_JSON)
    val parser = StrictJson.FACTORY.createParser(json)
    try {
      val builder = new VariantBuilder(false)
      parser.nextToken()
      append(parser, builder)
      if (parser.nextToken() != null) throw new Refusal(NOT_JSON)
      val variant = builder.result()
      new VariantVal(variant.getValue, variant.getMetadata)
    } finally parser.close()
  }

  /** Append the value at the parser's position. */
  private def append(parser: JsonParser, builder: VariantBuilder): Unit = parser.currentToken() match {
    case JsonToken.START_OBJECT => appendObject(parser, builder)
    case JsonToken.START_ARRAY =>
      val start = builder.getWritePos
      val offsets = new ArrayList[Integer]()
      while (parser.nextToken() != JsonToken.END_ARRAY) {
        offsets.add(builder.getWritePos - start)
        append(parser, builder)
      }
      builder.finishWritingArray(start, offsets)
    case JsonToken.VALUE_STRING =>
      val text = parser.getText
      if (!Utf8.hasForm(text)) throw refusal(parser, Converter.HALF_CHARACTER.problem)
      builder.appendString(text)
    case JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT => appendNumber(parser, builder)
    case JsonToken.VALUE_TRUE => builder.appendBoolean(true)
    case JsonToken.VALUE_FALSE => builder.appendBoolean(false)
    case JsonToken.VALUE_NULL => builder.appendNull()
    case _ => throw new Refusal(NOT_JSON)
  }

  private def appendObject(parser: JsonParser, builder: VariantBuilder): Unit = {
    val start = builder.getWritePos
    val entries = new ArrayList[VariantBuilder.FieldEntry]()
    while (parser.nextToken() != JsonToken.END_OBJECT) {
      val name = parser.currentName()
      if (!Utf8.hasForm(name)) throw refusal(parser, Converter.HALF_CHARACTER.problem)
      entries.add(new VariantBuilder.FieldEntry(name, builder.addKey(name), builder.getWritePos - start))
      parser.nextToken()
      append(parser, builder)
    }
    try builder.finishWritingObject(start, entries)
    catch {
      case error: RuntimeException with SparkThrowable if error.getCondition == "VARIANT_DUPLICATE_KEY" =>
        val name = Converter.memberPath(error.getMessageParameters.get("key"))
        throw new Refusal(ConversionError("is given twice", path(parser.getParsingContext) + name).message)
    }
  }

  /** Append a number: whole ones of 64 bits as such, others as a DECIMAL or as a double. */
  private def appendNumber(parser: JsonParser, builder: VariantBuilder): Unit =
    if (Converter.isLong(parser)) {
      val number = parser.getLongValue
      // Only a double has a zero with a sign.
      if (number == 0 && isNegative(parser)) builder.appendDouble(-0.0) else builder.appendLong(number)
    } else {
      val number = StrictJson.decimalValue(parser)
      if (number.signum == 0 && isNegative(parser)) builder.appendDouble(-0.0)
      else if (!hasExponent(parser) && isDecimal(number)) builder.appendDecimal(number)
      else appendReal(parser, number, builder)
    }

  /** Append a number as a double, or as a DECIMAL where it has more digits. */
  private def appendReal(parser: JsonParser, number: BigDecimal, builder: VariantBuilder): Unit = {
    val double = parser.getDoubleValue
    if (double.isInfinite)
      throw refusal(parser, s"${Converter.shown(parser.getText)} does not fit into a 64-bit float")
    // The exponents of numbers that are 0 or infinite as a double would overflow where zeros are stripped.
    val shortest = if (double == 0 && number.signum != 0) number else number.stripTrailingZeros
    if (isOf(double, shortest)) builder.appendDouble(double)
    else {
      val plain = if (shortest.scale < 0) shortest.setScale(0) else shortest
      if (!isDecimal(plain))
        throw refusal(parser, s"${Converter.shown(parser.getText)} has more digits than an expression can hold")
      builder.appendDecimal(plain)
    }
  }

  private def isNegative(parser: JsonParser): Boolean = parser.getText.charAt(0) == '-'

  private def hasExponent(parser: JsonParser): Boolean = parser.getText.exists(c => c == 'e' || c == 'E')

  private def isDecimal(number: BigDecimal): Boolean =
    number.precision <= DECIMAL_DIGITS && number.scale >= 0 && number.scale <= DECIMAL_DIGITS

  /** Whether a number is the one of as many digits that is next to the double which is read from it: then the double
    * says all of it, as it does of the numbers that other programs write for their doubles.
    */
  private def isOf(double: Double, number: BigDecimal): Boolean = number.precision <= DOUBLE_DIGITS &&
    (if (double == 0) number.signum == 0
     else new BigDecimal(double).subtract(number).abs.multiply(TWO).compareTo(number.ulp) <= 0)

  private def refusal(parser: JsonParser, problem: String): Refusal =
    new Refusal(ConversionError(problem, path(parser.getParsingContext)).message)

  /** Where the parser is: `.a[3].b`. */
  private def path(context: JsonStreamContext): String =
    if (context == null || context.inRoot) ""
    else {
      val before = path(context.getParent)
      if (context.inArray) s"$before[${context.getCurrentIndex}]"
      else before + Option(context.getCurrentName).fold("")(Converter.memberPath)
    }
}
