package glassflow

import java.nio.charset.StandardCharsets.UTF_8

import com.fasterxml.jackson.core.{JsonFactory, JsonFactoryBuilder, JsonParser, JsonToken, StreamReadConstraints}
import com.fasterxml.jackson.core.exc.StreamConstraintsException
import com.fasterxml.jackson.core.io.JsonStringEncoder
import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Decodes JSON objects by declared fields, strictly, in one pass over the bytes.
  *
  * Spark's own from_json takes {"id": 1} for a text, "NaN" for a number, and a missing field for a null one. Here a
  * value that is not of its declared kind is a reason to refuse the record, and so is a missing or null one where the
  * field is required, a declared field given twice, and anything that is not exactly one JSON object.
  *
  * @param spec
  *   JSON: [[name, kind, required], ...]; kinds: string, int, uint, float, bool, array, map, any (whatever JSON has),
  *   and decimal, bigint and ubigint: numbers whose digits no type of 64 bits holds
  */
class StrictJson(spec: String) extends Serializable {
  import StrictJson._

  private val fields: Array[Field] = readSpec(spec)

  /** One column a field (array, map and any: their JSON text; decimal, bigint and ubigint: their digits), then the
    * reason why not, null for a good record.
    */
  val schema: StructType =
    StructType(fields.map(f => StructField(f.name, sqlType(f.kind)))).add(ERROR, StringType)

  @transient private lazy val root: Node = fields.zipWithIndex.foldLeft(new Node) { case (node, (field, index)) =>
    node.child(field.name).take(index, literal = true)
    val path = field.name.split('.')
    if (path.length > 1) path.foldLeft(node)((at, name) => at.child(name)).take(index, literal = false)
    node
  }

  def decode(value: Array[Byte]): InternalRow = {
    val values = new Array[Any](fields.length + 1)
    values(fields.length) = refusal(value, values)
    if (values(fields.length) != null) java.util.Arrays.fill(values.asInstanceOf[Array[AnyRef]], 0, fields.length, null)
    new GenericInternalRow(values)
  }

  private def refusal(value: Array[Byte], values: Array[Any]): UTF8String = {
    if (value == null) return utf8("the record has no value")
    if (value.isEmpty) return utf8("the record's value is empty")
    if (!isUtf8Json(value)) return utf8("invalid JSON: not in UTF-8")
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
        return utf8(
          s"invalid JSON: ${e.getOriginalMessage.takeWhile(_ != '\n')}, at byte ${e.getLocation.getByteOffset}"
        )
      case e: java.io.IOException => return utf8(s"invalid JSON: ${e.getMessage}")
    } finally parser.close()
    firstProblem(found, problems)
  }

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
          // Its own value, if it is declared too, is the text between here and the end of the object.
          val start = parser.currentTokenLocation().getByteOffset.toInt
          readObject(parser, bytes, child, values, found, problems)
          child.takers.foreach { taker =>
            accept(taker, values, found, problems)(rawObject(fields(taker.index).kind, bytes, start, parser))
          }
        } else if (child.takers.isEmpty) parser.skipChildren()
        else readValue(parser, bytes, token, child, values, found, problems)
      }
    }

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
    parser.skipChildren() // an array or object that no field wanted
    var i = 0
    while (i < read.length) {
      accept(node.takers(i), values, found, problems)(read(i))
      i += 1
    }
  }

  /** Notes a value for a field. The literal name "a.b" goes before the path a -> b. */
  private def accept(
      taker: Taker,
      values: Array[Any],
      found: Array[Byte],
      problems: Array[String]
  )(value: Any): Unit = {
    val index = taker.index
    val place = if (taker.literal) LITERAL else NESTED
    val before = found(index)
    val beforePlace = (before & ~NULL).toByte
    if (beforePlace == place) problems(index) = "is given twice"
    else if (beforePlace == LITERAL && place == NESTED) () // the literal name has spoken
    else {
      values(index) = null
      problems(index) = null
      found(index) = if (value == null) (place | NULL).toByte else place
      value match {
        case Refused(problem) => problems(index) = problem
        case good => values(index) = good
      }
    }
  }

  private def rawObject(kind: String, bytes: Array[Byte], start: Int, parser: JsonParser): Any =
    if (kind == "map" || kind == "any") slice(bytes, start, parser) else Refused(s"expected $kind, got object")

  private def convert(parser: JsonParser, bytes: Array[Byte], token: JsonToken, kind: String): Any =
    (kind, token) match {
      case ("string", JsonToken.VALUE_STRING) => text(parser)
      case ("int", JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT) => long(parser)
      case ("float", JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT) => double(parser)
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
      case _ => Refused(s"expected ${called(kind)}, got ${describe(parser)}")
    }

  private def slice(bytes: Array[Byte], start: Int, parser: JsonParser): UTF8String =
    UTF8String.fromBytes(bytes, start, parser.currentLocation().getByteOffset.toInt - start).copy()

  private def text(parser: JsonParser): Any = {
    val string = parser.getText
    // UTF-8 has no bytes for half a surrogate pair; Java would write a question mark.
    if (string.exists(_.isSurrogate) && !UTF_8.newEncoder().canEncode(string))
      Refused("holds half a surrogate pair, which is no character")
    else utf8(string)
  }

  private def quoted(parser: JsonParser): Any = text(parser) match {
    case refused: Refused => refused
    case string => utf8("\"" + new String(JsonStringEncoder.getInstance.quoteAsString(string.toString)) + "\"")
  }

  /** A number as it was written; beyond a float's range expressions could not read it. */
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
      integral(parser) match {
        case Some(n) if n.bitLength < 64 => n.longValue
        case Some(_) => Refused(s"${abbreviate(parser.getText)} does not fit into 64 bits")
        case None => Refused(s"expected int, got ${abbreviate(parser.getText)}")
      }

  /** A number's digits, each number in one way only, so that a key is known again: 1.50 and 15e-1 are 1.5. */
  private def digits(parser: JsonParser): Any = {
    val number = decimalValue(parser)
    val shortest = if (number.signum == 0) java.math.BigDecimal.ZERO else number.stripTrailingZeros
    if (shortest.scale > DECIMAL_DIGITS || shortest.precision.toLong - shortest.scale > DECIMAL_DIGITS)
      Refused(s"${abbreviate(parser.getText)} has more than $DECIMAL_DIGITS digits before or after the point")
    else utf8(shortest.toPlainString)
  }

  private def bigInteger(parser: JsonParser, signed: Boolean): Any = {
    def refused = Refused(s"expected ${called(if (signed) "bigint" else "ubigint")}, got ${abbreviate(parser.getText)}")
    integral(parser, BIG_DIGITS) match {
      case Some(n) if n.signum < 0 && !signed => refused
      case Some(n) if n.bitLength <= (if (signed) 255 else 256) => utf8(n.toString)
      case Some(_) => Refused(s"${abbreviate(parser.getText)} does not fit into 256 bits")
      case None => refused
    }
  }

  private def unsigned(parser: JsonParser): Any = integral(parser) match {
    case Some(n) if n.signum < 0 => Refused(s"expected uint, got ${abbreviate(parser.getText)}")
    case Some(n) if n.bitLength <= 64 => Decimal(new java.math.BigDecimal(n), UINT_DIGITS, 0)
    case Some(_) => Refused(s"${abbreviate(parser.getText)} does not fit into 64 bits")
    case None => Refused(s"expected uint, got ${abbreviate(parser.getText)}")
  }

  /** A number's integer value: 3 and 3.0 have one, 3.7 has none. */
  private def integral(parser: JsonParser, digits: Int = UINT_DIGITS): Option[java.math.BigInteger] = {
    val number = decimalValue(parser)
    // 1e2147483647 is not to be written out, nor its scale to be counted with in 32 bits: more digits than the type
    // holds are enough to refuse it.
    if (number.signum != 0 && number.precision.toLong - number.scale > digits + 1) Some(TOO_BIG)
    else {
      val shortest = number.stripTrailingZeros
      if (shortest.scale > 0) None else Some(shortest.toBigIntegerExact)
    }
  }

  private def double(parser: JsonParser): Any = {
    val number = parser.getDoubleValue
    if (number.isInfinite) Refused(s"${abbreviate(parser.getText)} does not fit into a 64-bit float") else number
  }
}

object StrictJson {
  val ERROR = "_error"

  // 2^64 - 1 has 20 digits.
  private val UINT_DIGITS = 20
  // 2^256 - 1 has 78; a Decimal has at most 76.
  private val BIG_DIGITS = 78
  private val DECIMAL_DIGITS = 76
  private val TOO_BIG = java.math.BigInteger.ONE.shiftLeft(300)

  private val MISSING: Byte = 0
  private val LITERAL: Byte = 1
  private val NESTED: Byte = 2
  private val NULL: Byte = 4

  // Bounds of a record's JSON, which keep its time in proportion to its length and its depth within a thread's stack:
  // whatever reads nested values here calls itself. A catch of StackOverflowError would not do: the depth that a stack
  // holds depends on what Java has compiled by then, so that a repeated batch could decide otherwise.
  private val DEEPEST = 1000
  // Java reads digits in a time that grows by their number's square. The largest float has 309 before its point.
  private val NUMBER_CHARACTERS = 1000
  private val NAME_CHARACTERS = 50000
  // More than any broker takes unless it is told to.
  private val TEXT_CHARACTERS = 100 * 1000 * 1000

  private def beyondBounds(error: StreamConstraintsException): String = {
    val reason = error.getOriginalMessage
    val found = BOUNDS.collectFirst { case (beginning, told) if reason.startsWith(beginning) => told }
    s"invalid JSON: ${found.getOrElse(reason)}"
  }

  private val BOUNDS = Seq(
    "Document nesting depth" -> s"arrays and objects more than $DEEPEST deep",
    "Number value length" -> s"a number of more than $NUMBER_CHARACTERS digits",
    "Name length" -> s"a name of more than $NAME_CHARACTERS bytes",
    "String value length" -> s"a text of more than $TEXT_CHARACTERS characters"
  )

  /** For all JSON of records. Scope come from producers: they are not kept for ever, and many that share a hash cost
    * time, not the query.
    */
  val FACTORY: JsonFactory = new JsonFactoryBuilder()
    .streamReadConstraints(
      StreamReadConstraints.builder().maxNestingDepth(DEEPEST).maxNumberLength(NUMBER_CHARACTERS)
        .maxNameLength(NAME_CHARACTERS).maxStringLength(TEXT_CHARACTERS).build()
    )
    .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
    .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW)
    .build()

  /** Jackson would guess UTF-16 and UTF-32 from the zeros of their first characters; JSON in Kafka is UTF-8. */
  def isUtf8Json(value: Array[Byte]): Boolean = {
    var i = 0
    while (i < value.length && i < 4) {
      if (value(i) == 0 || value(i) == 0xfe.toByte || value(i) == 0xff.toByte) return false
      i += 1
    }
    true
  }

  private case class Field(name: String, kind: String, required: Boolean)

  /** Why a value is not what its field declares. */
  private case class Refused(problem: String)

  private case class Taker(index: Int, literal: Boolean)

  /** A name in the events: which fields take its value, and which names are looked for inside it. */
  private class Node {
    private val children = new java.util.HashMap[String, Node]()
    var takers: Array[Taker] = Array.empty

    def hasChildren: Boolean = !children.isEmpty
    def get(name: String): Node = children.get(name)
    def child(name: String): Node = children.computeIfAbsent(name, _ => new Node)
    def take(index: Int, literal: Boolean): Unit = takers = takers :+ Taker(index, literal)
  }

  private def readSpec(spec: String): Array[Field] = {
    val nodes = new ObjectMapper().readTree(spec)
    Array.tabulate(nodes.size) { i =>
      Field(nodes.get(i).get(0).asText, nodes.get(i).get(1).asText, nodes.get(i).get(2).asBoolean)
    }
  }

  private def sqlType(kind: String): DataType = kind match {
    case "int" => LongType
    case "uint" => DecimalType(UINT_DIGITS, 0)
    case "float" => DoubleType
    case "bool" => BooleanType
    case "string" | "array" | "map" | "any" | "decimal" | "bigint" | "ubigint" => StringType
  }

  /** A kind as definitions declare it. */
  private def called(kind: String): String = kind match {
    case "bigint" => "int128 or int256"
    case "ubigint" => "uint128 or uint256"
    case other => other
  }

  // A number beyond what BigDecimal's exponent of 32 bits can say, and one below.
  private val GREATEST = java.math.BigDecimal.ONE.scaleByPowerOfTen(Int.MaxValue)
  private val LEAST = java.math.BigDecimal.ONE.scaleByPowerOfTen(-Int.MaxValue)

  /** A number's value; one with a larger exponent than Java can write, such as 1e99999999999, is the nearest it can. */
  def decimalValue(parser: JsonParser): java.math.BigDecimal =
    try parser.getDecimalValue
    catch {
      case _: NumberFormatException =>
        if (parser.getText.toLowerCase(java.util.Locale.ROOT).contains("e-")) LEAST else GREATEST
    }

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
