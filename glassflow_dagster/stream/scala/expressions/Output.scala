package glassflow

import java.math.BigInteger

import com.fasterxml.jackson.databind.JsonNode
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

  /** The value of the field's column; null for nil. Throws Refusal. */
  def value(e: Evaluation): Any = {
    val found = read(e)
    if (found == null) if (isCondition) throw new Refusal("nil is neither true nor false") else null
    else {
      val converted = if (typeName == TEXT_LIST) textList(found) else convert(found)
      if (converted == null) throw new Refusal(s"the value is not of type ${if (typeName.isEmpty) kind else typeName}")
      FieldTerm.ofColumn(converted)
    }
  }

  /** The value as one of the field's kind; null where that does not hold it exactly. */
  private def convert(value: Any): Any = kind match {
    case "string" => if (term.kind == "time") TimeCalls.text(value.asInstanceOf[Long]) else Values.text(value)
    case "int" => Option(whole(value)).filter(_.bitLength < 64).map(_.longValue).orNull
    case "uint" => Option(whole(value)).filter(number => number.signum >= 0 && number.bitLength <= 64).orNull
    case "float" => if (term.kind == "time") null else NumberCalls.realOrNull(value)
    case "bool" => truth(value)
    case "array" => value match {
        case list: ListValue => JsonWriter.text(list)
        case passed: UTF8String if term.kind == "array" => passed
        case _ => null
      }
    case "map" => value match {
        case members: ObjectValue => JsonWriter.text(members)
        case passed: UTF8String if term.kind == "map" => passed
        case _ => null
      }
    case "any" => value match {
        case passed: UTF8String if term.isInstanceOf[FieldTerm] => passed
        case computed => JsonWriter.text(computed)
      }
    case "decimal" | "bigint" | "ubigint" => value // the digits of a field; no other kind converts to these
  }

  /** The exact value of a whole number, however it is written, or of the text of one; null for any other value. */
  private def whole(value: Any): BigInteger = value match {
    case number: java.lang.Long if term.kind != "time" => BigInteger.valueOf(number)
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
