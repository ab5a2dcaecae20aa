package glassflow

import java.math.BigInteger

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.types.Decimal
import org.apache.spark.unsafe.types.UTF8String

/** An expression whose value becomes a field like those of a decoded record.
  *
  * @param kind
  *   the kind of the field
  * @param typeName
  *   the type that the definition declares, for failures; `[]string` makes texts of a list's elements
  * @param prefix
  *   what the reason of a record begins with for which the expression cannot be evaluated
  * @param isCondition
  *   whether nil, which is neither true nor false, is a failure
  * @param kept
  *   how many values an evaluation keeps for the expression
  */
final class Output(
    val name: String,
    val kind: String,
    typeName: String,
    val prefix: String,
    isCondition: Boolean,
    term: Term,
    val kept: Int
) {
  import Output._

  // A field whose JSON is only passed on is not opened, so it comes out as it was sent.
  private val read: Evaluation => Any = term match {
    case field: FieldTerm if PASSED_ON.getOrElse(field.kind, Set.empty)(kind) && typeName != TEXT_LIST =>
      field.passedOn(_)
    case computed if computed.kind == "float" && !computed.isInstanceOf[FieldTerm] => computed.finite(_)
    case computed => computed.value(_)
  }

  private val isTime = term.kind == "time"

  /** A value that is not nil as one of the field's kind; null where that does not hold it exactly. */
  private val convert: Any => Any =
    if (typeName == TEXT_LIST) textList
    else kind match {
      case "string" if isTime => time => TimeCalls.text(time.asInstanceOf[Long])
      case "string" => Values.text
      case "int" => long
      case "uint" => unsigned
      case "float" => if (isTime) _ => null else NumberCalls.realOrNull
      case "bool" => truth
      case "array" => {
        case list: ListValue => JsonWriter.text(list)
        case passed: UTF8String if term.kind == "array" => passed
        case _ => null
      }
      case "map" => {
        case members: ObjectValue => JsonWriter.text(members)
        case passed: UTF8String if term.kind == "map" => passed
        case _ => null
      }
      case "any" if term.isInstanceOf[FieldTerm] => identity
      case "any" => JsonWriter.text
      case "decimal" | "bigint" | "ubigint" => identity // the digits of a field; no other kind converts to these
    }

  /** The value of the field's column; null for nil. Throws Refusal. */
  def value(e: Evaluation): Any = {
    val found = read(e)
    if (found == null) if (isCondition) throw new Refusal("nil is neither true nor false") else null
    else {
      val converted = convert(found)
      if (converted == null) throw new Refusal(s"the value is not of type ${if (typeName.isEmpty) kind else typeName}")
      converted
    }
  }

  private def long(value: Any): Any = value match {
    case number: java.lang.Long if !isTime => number
    case other =>
      val number = whole(other)
      if (number == null || number.bitLength >= 64) null else number.longValue
  }

  private def unsigned(value: Any): Any = {
    val number = whole(value)
    if (number == null || number.signum < 0 || number.bitLength > 64) null
    else Decimal(new java.math.BigDecimal(number), StrictJson.UINT_DIGITS, 0)
  }

  /** The exact value of a whole number, however it is written, or of the text of one; null for any other value. */
  private def whole(value: Any): BigInteger = value match {
    case number: java.lang.Long if !isTime => BigInteger.valueOf(number)
    case number: BigInteger => number
    case number: NumberValue => number.whole
    case number: java.lang.Double if number == Math.rint(number) && Values.isFinite(number) =>
      new java.math.BigDecimal(number).toBigIntegerExact
    case text: UTF8String if text.numBytes <= MOST_DIGITS && INTEGER.matcher(text.toString).matches =>
      new BigInteger(text.toString)
    case _ => null
  }

  /** A bool, or a field's text `true` or `false`; null for any other value, also for a text inside JSON. */
  private def truth(value: Any): Any = value match {
    case truth: java.lang.Boolean => truth
    case text: UTF8String if term.kind == "string" =>
      text.toString match {
        case "true" => true
        case "false" => false
        case _ => null
      }
    case _ => null
  }

  private def textList(value: Any): UTF8String = value match {
    case list: ListValue => JsonWriter.text(ListValue(list.items.map[Any](Values.text)))
    case _ => null
  }
}

object Output {
  private final val TEXT_LIST = "[]string"

  // Kinds of fields that are JSON -> the kinds of outputs that take the text as it is.
  private val PASSED_ON = Map("array" -> Set("array", "string"), "map" -> Set("map", "string"), "any" -> Set("any"))

  private val INTEGER = java.util.regex.Pattern.compile("[+-]?\\d+")
  // As for a number in JSON: the time to parse grows with the square of the number of digits.
  private final val MOST_DIGITS = StrictJson.NUMBER_CHARACTERS

  /** node: {"name", "kind", "type", "prefix", "condition", "text", "nodes", "kept"}; fields, firstKept: see Terms. */
  def apply(node: JsonNode, fields: Array[ProgramField], firstKept: Int): Output = {
    def word(name: String): String = node.get(name).asText
    val kept = Program.elements(node.get("kept")).map(_.asInt)
    val terms = new Terms(word("text"), Program.elements(node.get("nodes")), fields, kept, firstKept)
    new Output(
      word("name"),
      word("kind"),
      word("type"),
      word("prefix"),
      node.get("condition").asBoolean,
      terms.root,
      kept.length
    )
  }
}
