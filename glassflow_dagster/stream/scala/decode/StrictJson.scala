package glassflow

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.{JsonFactory, JsonFactoryBuilder, JsonParser, JsonToken, StreamReadConstraints}
import com.fasterxml.jackson.core.exc.StreamConstraintsException
import com.fasterxml.jackson.core.io.JsonStringEncoder
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Decodes JSON objects to the declared fields, strictly, in one pass over the bytes.
  *
  * Spark's own from_json accepts {"id": 1} as a text, "NaN" as a number, and a missing field as a null one. Here a
  * record becomes a dead letter if a value is not of its declared kind, a required field is missing or null, a declared
  * field is there twice, or its value is anything else than exactly one JSON object.
  *
  * @param spec
  *   JSON: see readFields; kinds: string, int, uint, float, bool, array, map, any (whatever JSON has), and decimal,
  *   bigint and ubigint: numbers whose digits no type of 64 bits holds
  * @param part
  *   what of a record the JSON is, its "value" or its "key", for error messages
  */
class StrictJson(spec: String, part: String) extends Serializable {
  import StrictJson._

  def this(spec: String) = this(spec, RecordPart.VALUE)

  private val fields: Array[JsonField] = readFields(new ObjectMapper().readTree(spec))

  /** One column per field (array, map and any: their JSON text; decimal, bigint and ubigint: their digits), and the
    * reason why the record cannot be decoded, null for a good one.
    */
  val schema: StructType = schemaOf(fields)

  @transient private lazy val root: Node = Node(fields)
  // Each task has a decoder of its own.
  @transient private lazy val scanner = new JsonScanner(fields, root)

  /** Decode a record: by the scanner, which most records pass, or else by Jackson, which finds what is wrong. */
  def decode(value: Array[Byte]): InternalRow = {
    val scanned = scan(value)
    if (scanned != null) scanned else decodeByJackson(value)
  }

  /** Decode a record by the scanner alone; null for one that it leaves to Jackson. */
  def scan(value: Array[Byte]): InternalRow = {
    val values = new Array[Any](fields.length + 1)
    if (value != null && scanner.read(value, values)) new GenericInternalRow(values) else null
  }

  /** Decode a record by Jackson alone; the same result as by `decode`. */
  def decodeByJackson(value: Array[Byte]): InternalRow = {
    val values = new Array[Any](fields.length + 1)
    val reason = refusal(value, values)
    if (reason != null) java.util.Arrays.fill(values.asInstanceOf[Array[AnyRef]], null)
    values(fields.length) = reason
    new GenericInternalRow(values)
  }

  /** Read all fields into `values`; return the reason why the record cannot be decoded, null for a good one. */
  private def refusal(value: Array[Byte], values: Array[Any]): UTF8String = {
    if (value == null) return utf8(s"the record has no $part")
    if (value.isEmpty) return utf8(s"the record's $part is empty")
    val badBytes = Utf8.problemOfJson(value)
    if (badBytes != null) return utf8(badBytes)
    val problems = new Array[String](fields.length)
    val found = new Array[Byte](fields.length)
    val parser = FACTORY.createParser(value)
    try {
      if (parser.nextToken() != JsonToken.START_OBJECT) return utf8(s"not a JSON object but ${describe(parser)}")
      readObject(parser, value, root, values, found, problems)
      if (parser.nextToken() != null) return utf8("invalid JSON: something follows the object")
    } catch {
      case e: StreamConstraintsException => return utf8(beyondBounds(e))
      case e: com.fasterxml.jackson.core.JsonProcessingException =>
        return utf8(s"${JsonProblem.of(e)}, at byte ${e.getLocation.getByteOffset}")
      case e: java.io.IOException => return utf8(s"invalid JSON: ${e.getMessage}")
    } finally parser.close()
    firstProblem(found, problems)
  }

  /** The reason of the first declared field, in their order, that is wrong, missing or null; null for none. */
  private def firstProblem(found: Array[Byte], problems: Array[String]): UTF8String = {
    var i = 0
    while (i < fields.length) {
      if (problems(i) != null) return utf8(s"field '${fields(i).name}': ${problems(i)}")
      if (found(i) == MISSING && fields(i).required) return utf8(s"field '${fields(i).name}' is missing")
      if ((found(i) & NULL) != 0 && fields(i).required) return utf8(s"field '${fields(i).name}' is null")
      i += 1
    }
    null
  }

  /** Read the members of an object, down to the declared names; others are skipped. The parser is at its start. */
  private def readObject(
      parser: JsonParser,
      bytes: Array[Byte],
      node: Node,
      values: Array[Any],
      found: Array[Byte],
      problems: Array[String]
  ): Unit =
    while (parser.nextToken() != JsonToken.END_OBJECT) {
      val child = node.get(parser.currentName())
      val token = parser.nextToken()
      if (child == null) parser.skipChildren()
      else {
        if (child.hasChildren && token == JsonToken.START_OBJECT) {
          // If the object itself is declared, too, its value is the JSON text from here to its end.
          val start = parser.currentTokenLocation().getByteOffset.toInt
          readObject(parser, bytes, child, values, found, problems)
          child.takers.foreach { taker =>
            setField(taker, values, found, problems)(rawObject(fields(taker.index).kind, bytes, start, parser))
          }
        } else if (child.takers.isEmpty) parser.skipChildren()
        else readValue(parser, bytes, token, child, values, found, problems)
      }
    }

  /** Read a value for each field that takes it. */
  private def readValue(
      parser: JsonParser,
      bytes: Array[Byte],
      token: JsonToken,
      node: Node,
      values: Array[Any],
      found: Array[Byte],
      problems: Array[String]
  ): Unit = {
    val read: Array[Any] = node.takers.map { taker =>
      if (token == JsonToken.VALUE_NULL) null else convert(parser, bytes, token, fields(taker.index).kind)
    }
    parser.skipChildren() // an array or object that no field takes
    var i = 0
    while (i < read.length) {
      setField(node.takers(i), values, found, problems)(read(i))
      i += 1
    }
  }

  /** Set a field's value, or its problem. The literal name "a.b" takes precedence over the path a -> b; two values by
    * the same way are a problem.
    */
  private def setField(
      taker: Taker,
      values: Array[Any],
      found: Array[Byte],
      problems: Array[String]
  )(value: Any): Unit = {
    val index = taker.index
    val origin = if (taker.literal) LITERAL else NESTED
    val before = found(index)
    val previousOrigin = (before & ~NULL).toByte
    if (previousOrigin == origin) problems(index) = "is given twice"
    else if (previousOrigin == LITERAL && origin == NESTED) () // the literal name takes precedence
    else {
      values(index) = null
      problems(index) = null
      found(index) = if (value == null) (origin | NULL).toByte else origin
      value match {
        case Refused(problem) => problems(index) = problem
        case good => values(index) = good
      }
    }
  }

  /** The JSON text of an object that the parser has just read, as the value of a field of this kind. */
  private def rawObject(kind: String, bytes: Array[Byte], start: Int, parser: JsonParser): Any =
    if (kind == "map" || kind == "any") slice(bytes, start, parser) else Refused(s"expected $kind, got object")

  /** The parser's value as one of a field of this kind, or Refused. */
  private def convert(parser: JsonParser, bytes: Array[Byte], token: JsonToken, kind: String): Any =
    (kind, token) match {
      case ("string", JsonToken.VALUE_STRING) => text(parser)
      case ("int", JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT) => long(parser)
      case ("float", JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT) => real(parser)
      case ("bool", JsonToken.VALUE_TRUE) => true
      case ("bool", JsonToken.VALUE_FALSE) => false
      case ("uint", JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT) => unsigned(parser)
      case ("decimal", JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT) => digits(parser)
      case ("bigint" | "ubigint", JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT) =>
        bigInteger(parser, signed = kind == "bigint")
      case ("any", JsonToken.VALUE_STRING) => quoted(parser)
      case ("any", JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT) => numberText(parser)
      case ("any", JsonToken.VALUE_TRUE | JsonToken.VALUE_FALSE) => utf8(parser.getText)
      case ("array" | "any", JsonToken.START_ARRAY) | ("map" | "any", JsonToken.START_OBJECT) =>
        val start = parser.currentTokenLocation().getByteOffset.toInt
        parser.skipChildren()
        slice(bytes, start, parser)
      case _ => Refused(s"expected ${called(kind)}, got ${describe(parser)}${remedy(kind, token)}")
    }

  /** What to do where a bool is sent as a number, or a whole number as a bool. */
  private def remedy(kind: String, token: JsonToken): String = (kind, token) match {
    case ("bool", JsonToken.VALUE_NUMBER_INT) => " (declare it as int, and output n == 1 in a transform)"
    case ("int" | "uint", JsonToken.VALUE_TRUE | JsonToken.VALUE_FALSE) =>
      " (declare it as bool, and output b ? 1 : 0 in a transform)"
    case _ => ""
  }

  /** The bytes from `start` to the parser's position, as text. */
  private def slice(bytes: Array[Byte], start: Int, parser: JsonParser): UTF8String =
    UTF8String.fromBytes(bytes, start, parser.currentLocation().getByteOffset.toInt - start).copy()

  private def text(parser: JsonParser): Any = {
    val string = parser.getText
    // Half a surrogate pair cannot be encoded in UTF-8; Java would replace it by a question mark.
    if (Utf8.hasForm(string)) utf8(string) else Refused("holds half a surrogate pair, which is not a character")
  }

  private def quoted(parser: JsonParser): Any = text(parser) match {
    case refused: Refused => refused
    case string => utf8("\"" + new String(JsonStringEncoder.getInstance.quoteAsString(string.toString)) + "\"")
  }

  /** A number as it was written. It must be within a double's range, as expressions read it as one. */
  private def numberText(parser: JsonParser): Any = double(parser) match {
    case refused: Refused => refused
    case _ => utf8(parser.getText)
  }

  private def long(parser: JsonParser): Any =
    if (
      parser.currentToken() == JsonToken.VALUE_NUMBER_INT && parser.getNumberType != JsonParser.NumberType.BIG_INTEGER
    )
      parser.getLongValue
    else
      integral(decimalValue(parser), UINT_DIGITS) match {
        case Some(n) if n.bitLength < 64 => n.longValue
        case Some(_) => Refused(s"${abbreviate(parser.getText)} does not fit into 64 bits")
        case None => Refused(s"expected int, got ${abbreviate(parser.getText)}")
      }

  /** A number's digits in one form, so that equal keys are equal texts: 1.50 and 15e-1 become 1.5. */
  private def digits(parser: JsonParser): Any = canonical(decimalValue(parser)) match {
    case Some(text) => utf8(text)
    case None =>
      Refused(s"${abbreviate(parser.getText)} has more than $DECIMAL_DIGITS digits before or after the point")
  }

  private def bigInteger(parser: JsonParser, signed: Boolean): Any = {
    val number = decimalValue(parser)
    StrictJson.bigInteger(number, signed) match {
      case Some(text) => utf8(text)
      case None if integral(number, BIG_DIGITS).exists(n => n.signum >= 0 || signed) =>
        Refused(s"${abbreviate(parser.getText)} does not fit into 256 bits")
      case None =>
        Refused(s"expected ${called(if (signed) "bigint" else "ubigint")}, got ${abbreviate(parser.getText)}")
    }
  }

  private def unsigned(parser: JsonParser): Any = integral(decimalValue(parser), UINT_DIGITS) match {
    case Some(n) if n.signum < 0 => Refused(s"expected uint, got ${abbreviate(parser.getText)}")
    case Some(n) if n.bitLength <= 64 => Decimal(new java.math.BigDecimal(n), UINT_DIGITS, 0)
    case Some(_) => Refused(s"${abbreviate(parser.getText)} does not fit into 64 bits")
    case None => Refused(s"expected uint, got ${abbreviate(parser.getText)}")
  }

  private def real(parser: JsonParser): Any = double(parser) match {
    case number: Double =>
      val loss = Floats.loss(parser.getText, number, "a 64-bit float")
      if (loss == null) number else Refused(loss)
    case refused => refused
  }

  private def double(parser: JsonParser): Any = {
    val number = parser.getDoubleValue
    if (number.isInfinite) Refused(s"${abbreviate(parser.getText)} does not fit into a 64-bit float") else number
  }
}

object StrictJson {
  val ERROR = "_error"

  // 2^64 - 1 has 20 digits.
  val UINT_DIGITS = 20
  // 2^256 - 1 has 78; a Decimal has at most 76.
  private val BIG_DIGITS = 78
  private val DECIMAL_DIGITS = 76
  private val TOO_BIG = java.math.BigInteger.ONE.shiftLeft(300)

  private val MISSING: Byte = 0
  private val LITERAL: Byte = 1
  private val NESTED: Byte = 2
  private val NULL: Byte = 4

  // Limits of a record's JSON: its nesting, as the code that reads nested values is recursive and must not overflow the
  // stack. To catch StackOverflowError would not do: at which depth it is thrown depends on what Java has compiled by
  // then, so a repeated batch could decide differently.
  val DEEPEST = 1000
  // The digits of a number, as Java parses them in quadratic time. The largest double has 309 before its point.
  val NUMBER_CHARACTERS = 1000
  val NAME_CHARACTERS = 50000
  // More than brokers take by default.
  val TEXT_CHARACTERS = 100 * 1000 * 1000

  /** What is wrong where JSON is beyond a limit. */
  def beyondBounds(error: StreamConstraintsException): String = {
    val reason = error.getOriginalMessage
    val found = BOUNDS.collectFirst { case (beginning, shown) if reason.startsWith(beginning) => shown }
    s"invalid JSON: ${found.getOrElse(reason)}"
  }

  private val BOUNDS = Seq(
    "Document nesting depth" -> s"arrays and objects more than $DEEPEST deep",
    "Number value length" -> s"a number of more than $NUMBER_CHARACTERS digits",
    "Name length" -> s"a name of more than $NAME_CHARACTERS bytes",
    "String value length" -> s"a text of more than $TEXT_CHARACTERS characters"
  )

  /** The parser factory for all JSON of records. Names of members come from producers, so they are not interned, which
    * would keep them for ever, and many names with the same hash are only slow, not an error.
    */
  val FACTORY: JsonFactory = new JsonFactoryBuilder()
    .streamReadConstraints(
      StreamReadConstraints.builder().maxNestingDepth(DEEPEST).maxNumberLength(NUMBER_CHARACTERS)
        .maxNameLength(NAME_CHARACTERS).maxStringLength(TEXT_CHARACTERS).build()
    )
    .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
    .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW)
    .build()

  /** The result for a value that does not fit its field's kind. */
  private case class Refused(problem: String)

  /** The declared fields, from [[name, kind, required], ...]. A fourth part, a list, is the field's path; without it
    * the name "a.b" stands for the path a -> b.
    */
  def readFields(nodes: JsonNode): Array[JsonField] = Array.tabulate(nodes.size) { i =>
    val node = nodes.get(i)
    val name = node.get(0).asText
    val path = Option(node.get(3)).map(_.elements.asScala.map(_.asText).toSeq)
    JsonField(name, node.get(1).asText, node.get(2).asBoolean, path.getOrElse(name.split('.').toSeq))
  }

  /** The columns that a decoder makes of these fields. */
  def schemaOf(fields: Array[JsonField]): StructType =
    StructType(fields.map(f => StructField(f.name, sqlType(f.kind)))).add(ERROR, StringType)

  private def sqlType(kind: String): DataType = kind match {
    case "int" => LongType
    case "uint" => DecimalType(UINT_DIGITS, 0)
    case "float" => DoubleType
    case "bool" => BooleanType
    case "string" | "array" | "map" | "any" | "decimal" | "bigint" | "ubigint" => StringType
  }

  /** A kind's name for an error message, as in a definition. */
  private def called(kind: String): String = kind match {
    case "bigint" => "int128 or int256"
    case "ubigint" => "uint128 or uint256"
    case other => other
  }

  // Stand for numbers whose exponent does not fit into BigDecimal's 32 bits: a huge and a tiny one.
  private val GREATEST = java.math.BigDecimal.ONE.scaleByPowerOfTen(Int.MaxValue)
  private val LEAST = java.math.BigDecimal.ONE.scaleByPowerOfTen(-Int.MaxValue)

  /** A number's value; GREATEST or LEAST if its exponent is beyond BigDecimal's, such as 1e99999999999. */
  def decimalValue(parser: JsonParser): java.math.BigDecimal =
    try parser.getDecimalValue
    catch { case _: NumberFormatException => beyondDecimal(parser.getText) }

  /** The number that a text in JSON's form denotes, as `decimalValue` reads it. */
  def decimal(written: String): java.math.BigDecimal =
    try new java.math.BigDecimal(written)
    catch { case _: NumberFormatException => beyondDecimal(written) }

  private def beyondDecimal(written: String): java.math.BigDecimal =
    if (written.toLowerCase(java.util.Locale.ROOT).contains("e-")) LEAST else GREATEST

  /** A decimal number's digits in one form, without an exponent; None with more than 76 before or after the point. */
  def canonical(number: java.math.BigDecimal): Option[String] = Option(number).flatMap { number =>
    // Before its zeros are stripped, which overflows a scale near the least that there is.
    if (number.signum != 0 && number.precision.toLong - number.scale > DECIMAL_DIGITS) None
    else {
      val shortest = if (number.signum == 0) java.math.BigDecimal.ZERO else number.stripTrailingZeros
      if (shortest.scale <= DECIMAL_DIGITS) Some(shortest.toPlainString) else None
    }
  }

  /** A whole number's digits in one form; None for one with a fraction, or beyond 256 bits. */
  def bigInteger(number: java.math.BigDecimal, signed: Boolean): Option[String] =
    Option(number).flatMap(integral(_, BIG_DIGITS)).collect {
      case n if (signed || n.signum >= 0) && n.bitLength <= (if (signed) 255 else 256) => n.toString
    }

  /** A number's integer value, which 3 and 3.0 have and 3.7 has not; TOO_BIG beyond 20 digits. */
  def wholeNumber(number: java.math.BigDecimal): Option[java.math.BigInteger] = integral(number, UINT_DIGITS)

  /** A number's integer value, which 3 and 3.0 have and 3.7 has not; TOO_BIG with more than `digits` digits. */
  private def integral(number: java.math.BigDecimal, digits: Int): Option[java.math.BigInteger] =
    // Checked before the number is expanded, which for 1e2147483647 would take 2 GB; in 64 bits, as its scale could
    // overflow 32.
    if (number.signum != 0 && number.precision.toLong - number.scale > digits + 1) Some(TOO_BIG)
    else {
      val shortest = number.stripTrailingZeros
      if (shortest.scale > 0) None else Some(shortest.toBigIntegerExact)
    }

  /** The kind of the parser's token, for an error message. */
  private def describe(parser: JsonParser): String = parser.currentToken() match {
    case null => "nothing"
    case JsonToken.START_OBJECT => "object"
    case JsonToken.START_ARRAY => "array"
    case JsonToken.VALUE_STRING => "string"
    case JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT => "number"
    case JsonToken.VALUE_TRUE | JsonToken.VALUE_FALSE => "bool"
    case JsonToken.VALUE_NULL => "null"
    case other => other.toString
  }

  private def abbreviate(text: String): String = if (text.length <= 40) text else text.take(37) + "..."

  private def utf8(text: String): UTF8String = UTF8String.fromString(text)
}
