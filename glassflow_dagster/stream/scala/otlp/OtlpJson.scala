package glassflow

import java.util.{ArrayList, Base64}

import com.fasterxml.jackson.core.{JsonParser, JsonProcessingException, JsonToken}
import com.fasterxml.jackson.core.exc.StreamConstraintsException
import org.apache.spark.unsafe.types.UTF8String

/** Reads an export request in OTLP's JSON: Protobuf's JSON, but the ids of traces and spans are hexadecimal.
  *
  * Names may be in camel case or as in the .proto files, numbers of 64 bits may be texts, enums numbers or names.
  * Unknown members are skipped, as OTLP demands. To be used by one thread. All methods throw Refusal.
  */
final class OtlpJson(kind: MessageType) {
  import OtlpJson._

  // By the message: its fields by their names.
  private val named = new java.util.IdentityHashMap[MessageType, java.util.HashMap[String, ProtobufField]]()

  /** The values of a request, in the form of ProtobufRecords.parse. */
  def read(value: Array[Byte]): Array[Any] = {
    if (value.isEmpty) throw new Refusal("the record's value is empty")
    val badBytes = Utf8.problemOfJson(value)
    if (badBytes != null) throw new Refusal(badBytes)
    val parser = StrictJson.FACTORY.createParser(value)
    try {
      if (parser.nextToken() != JsonToken.START_OBJECT) throw new Refusal("invalid OTLP: not a JSON object")
      val request = message(parser, kind, 0)
      if (parser.nextToken() != null) throw new Refusal("invalid JSON: something follows the object")
      request
    } catch {
      case error: StreamConstraintsException => throw new Refusal(StrictJson.beyondBounds(error))
      case error: JsonProcessingException =>
        throw new Refusal(s"${JsonProblem.of(error)}, at byte ${error.getLocation.getByteOffset}")
      case error: java.io.IOException => throw new Refusal(s"invalid JSON: ${error.getMessage}")
    } finally parser.close()
  }

  /** The members of an object, whose brace the parser has just read. */
  private def message(parser: JsonParser, kind: MessageType, depth: Int): Array[Any] = {
    if (depth > SchemaDecoder.DEEPEST)
      throw new Refusal(s"invalid OTLP: messages more than ${SchemaDecoder.DEEPEST} deep")
    val found = new Array[Any](kind.fields.length)
    // A bit for each field that the object names; no message of OpenTelemetry's has more than 64.
    var given = 0L
    var hasUnknown = false
    while (parser.nextToken() != JsonToken.END_OBJECT) {
      val field = fieldsOf(kind).get(parser.currentName())
      val token = parser.nextToken()
      if (field == null) {
        hasUnknown = true
        parser.skipChildren()
      } else {
        // In one spelling or in both: nothing says which of the values counts.
        if ((given & 1L << field.index) != 0) throw refusal(field, "is given twice")
        given |= 1L << field.index
        if (token != JsonToken.VALUE_NULL) {
          kind.othersOf(field).find(field.oneOf != null && found(_) != null).foreach(other =>
            throw refusal(field, s"is given beside ${camelCase(kind.fields(other).name)}; only one of them is possible")
          )
          found(field.index) = if (field.isRepeated) list(parser, field, depth) else one(parser, field, depth)
        }
      }
    }
    if (depth == 0 && given == 0 && hasUnknown) throw OtlpSchema.anotherRequest(camelCase(kind.fields.head.name))
    found
  }

  private def list(parser: JsonParser, field: ProtobufField, depth: Int): ArrayList[Any] = {
    require(parser, field, JsonToken.START_ARRAY, "an array")
    val values = new ArrayList[Any]()
    while (parser.nextToken() != JsonToken.END_ARRAY) values.add(one(parser, field, depth))
    values
  }

  private def one(parser: JsonParser, field: ProtobufField, depth: Int): Any = field.kind match {
    case kind: MessageType =>
      require(parser, field, JsonToken.START_OBJECT, "an object")
      message(parser, kind, depth + 1)
    case kind: EnumType =>
      if (parser.currentToken() != JsonToken.VALUE_STRING) Long.box(whole(parser, field))
      else
        kind.numbers.get(parser.getText) match {
          case Some(number) => Long.box(number.toLong)
          case None => throw refusal(field, s"has no value '${shown(parser)}'")
        }
    case ScalarType("string") =>
      require(parser, field, JsonToken.VALUE_STRING, "a text")
      val text = parser.getText
      // Half a surrogate pair cannot be encoded in UTF-8; Java would replace it by a question mark.
      if (!Utf8.hasForm(text))
        throw refusal(field, "holds half a surrogate pair, which is not a character")
      UTF8String.fromString(text)
    case ScalarType("bytes") =>
      require(parser, field, JsonToken.VALUE_STRING, "a text")
      bytes(parser, field)
    case ScalarType("bool") => parser.currentToken() match {
        case JsonToken.VALUE_TRUE => Long.box(1)
        case JsonToken.VALUE_FALSE => Long.box(0)
        case _ => throw refusal(field, s"is not true or false but ${shown(parser)}")
      }
    case ScalarType("double") => Double.box(double(parser, field))
    case _ => Long.box(whole(parser, field))
  }

  private def bytes(parser: JsonParser, field: ProtobufField): Array[Byte] = {
    val text = parser.getText
    if (IDS.contains(field.name)) {
      if (text.length % 2 != 0 || !text.forall(c => Character.digit(c, 16) >= 0 && c < 128))
        throw refusal(field, s"is not hexadecimal: '${shown(parser)}'")
      java.util.HexFormat.of().parseHex(text)
    } else
      try (if (text.exists(c => c == '-' || c == '_')) Base64.getUrlDecoder else Base64.getDecoder).decode(text)
      catch { case _: IllegalArgumentException => throw refusal(field, s"is not base64: '${shown(parser)}'") }
  }

  private def double(parser: JsonParser, field: ProtobufField): Double = parser.currentToken() match {
    case JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT => finite(parser.getDoubleValue, parser, field)
    case JsonToken.VALUE_STRING => parser.getText match {
        case "NaN" => Double.NaN
        case "Infinity" => Double.PositiveInfinity
        case "-Infinity" => Double.NegativeInfinity
        case text if isNumber(text) => finite(text.toDouble, parser, field)
        case _ => throw refusal(field, s"is not a number: '${shown(parser)}'")
      }
    case _ => throw refusal(field, s"is not a number: ${shown(parser)}")
  }

  private def finite(number: Double, parser: JsonParser, field: ProtobufField): Double =
    if (number.isInfinite) throw refusal(field, s"does not fit into 64 bits: ${shown(parser)}") else number

  /** A whole number that fits the field's type, in the form of ProtobufRecords.parse. */
  private def whole(parser: JsonParser, field: ProtobufField): Long = {
    val number = parser.currentToken() match {
      case JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT => StrictJson.decimalValue(parser)
      case JsonToken.VALUE_STRING if isNumber(parser.getText) => new java.math.BigDecimal(parser.getText)
      case _ => throw refusal(field, s"is not a whole number: ${shown(parser)}")
    }
    val (least, greatest) = LIMITS.getOrElse(field.kind.name, LIMITS("int32"))
    StrictJson.wholeNumber(number) match {
      case Some(n) if n.compareTo(least) >= 0 && n.compareTo(greatest) <= 0 => n.longValue
      case _ => throw refusal(field, s"is not a whole number of its size: ${shown(parser)}")
    }
  }

  private def require(parser: JsonParser, field: ProtobufField, token: JsonToken, called: String): Unit =
    if (parser.currentToken() != token) throw refusal(field, s"is not $called but ${shown(parser)}")

  private def fieldsOf(kind: MessageType): java.util.HashMap[String, ProtobufField] = {
    var fields = named.get(kind)
    if (fields == null) {
      fields = new java.util.HashMap[String, ProtobufField]()
      kind.fields.foreach { field =>
        fields.put(field.name, field)
        fields.put(camelCase(field.name), field)
      }
      named.put(kind, fields)
    }
    fields
  }
}

object OtlpJson {
  private val IDS = Set("trace_id", "span_id", "parent_span_id")
  private final val SHOWN = 40
  // Longer numbers are not parsed, as Java does so in quadratic time.
  private final val NUMBER_CHARACTERS = 400
  private val NUMBER = "-?[0-9]+(\\.[0-9]+)?([eE][-+]?[0-9]{1,5})?".r

  private def limits(bits: Int, signed: Boolean): (java.math.BigInteger, java.math.BigInteger) = {
    val one = java.math.BigInteger.ONE
    val until = one.shiftLeft(if (signed) bits - 1 else bits)
    (if (signed) until.negate else java.math.BigInteger.ZERO, until.subtract(one))
  }

  private val LIMITS = Map(
    "int32" -> limits(32, signed = true),
    "uint32" -> limits(32, signed = false),
    "fixed32" -> limits(32, signed = false),
    "int64" -> limits(64, signed = true),
    "sfixed64" -> limits(64, signed = true),
    "fixed64" -> limits(64, signed = false)
  )

  private def isNumber(text: String): Boolean = text.length <= NUMBER_CHARACTERS && NUMBER.matches(text)

  private def camelCase(name: String): String = {
    val parts = name.split('_')
    parts.head + parts.tail.map(_.capitalize).mkString
  }

  private def shown(parser: JsonParser): String = {
    val text = parser.getText
    if (text.length <= SHOWN) text else text.take(SHOWN) + "..."
  }

  private def refusal(field: ProtobufField, problem: String): Refusal =
    new Refusal(s"invalid OTLP: ${camelCase(field.name)} $problem")
}
