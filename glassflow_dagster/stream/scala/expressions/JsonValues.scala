package glassflow

import java.util.ArrayList

import com.fasterxml.jackson.core.{JsonParser, JsonProcessingException, JsonStreamContext, JsonToken}
import com.fasterxml.jackson.core.exc.StreamConstraintsException
import org.apache.spark.unsafe.types.UTF8String

/** Reads JSON as values of expressions, with all that it says: members in their order, numbers with their digits.
  *
  * JSON that an expression opens is checked as a whole: with two members of one name, half a surrogate pair or a number
  * beyond a double it is refused, with the path of that value. (A field that an expression only passes on is not
  * opened.)
  */
object JsonValues {

  /** The value of a JSON text; throws Refusal. */
  def read(text: UTF8String): Any = {
    val json = text.getBytes
    if (Utf8.problemOfJson(json) != null) throw new Refusal(NOT_JSON)
    val parser = StrictJson.FACTORY.createParser(json)
    try {
      parser.nextToken()
      val value = read(parser)
      if (parser.nextToken() != null) throw new Refusal(NOT_JSON)
      value
    } catch {
      case error: StreamConstraintsException => throw new Refusal(StrictJson.beyondBounds(error))
      case _: JsonProcessingException => throw new Refusal(NOT_JSON)
    } finally parser.close()
  }

  private final val NOT_JSON = "the value is not JSON"
  // A number of fewer characters without an exponent is within a double's range, which ends at 1.8e308.
  private final val SURE_CHARACTERS = 308

  /** The value at the parser's position. */
  private def read(parser: JsonParser): Any = parser.currentToken() match {
    case JsonToken.START_OBJECT => readObject(parser)
    case JsonToken.START_ARRAY =>
      val items = new ArrayList[Any]()
      while (parser.nextToken() != JsonToken.END_ARRAY) items.add(read(parser))
      ListValue(items.toArray.asInstanceOf[Array[Any]])
    case JsonToken.VALUE_STRING => Converter.jsonString(parser).getOrElse(throw half(parser))
    case JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT => number(parser)
    case JsonToken.VALUE_TRUE => java.lang.Boolean.TRUE
    case JsonToken.VALUE_FALSE => java.lang.Boolean.FALSE
    case JsonToken.VALUE_NULL => null
    case _ => throw new Refusal(NOT_JSON)
  }

  private def readObject(parser: JsonParser): ObjectValue = {
    val (names, values) = (new ArrayList[UTF8String](), new ArrayList[Any]())
    while (parser.nextToken() != JsonToken.END_OBJECT) {
      val name = parser.currentName()
      if (!Utf8.hasForm(name)) throw half(parser)
      names.add(UTF8String.fromString(name))
      parser.nextToken()
      values.add(read(parser))
    }
    val found = ObjectValue(names.toArray(Array.empty[UTF8String]), values.toArray.asInstanceOf[Array[Any]])
    val twice = repeated(found.names)
    if (twice == null) found
    else {
      val at = path(parser.getParsingContext) + Converter.memberPath(twice.toString)
      throw new Refusal(ConversionError("is given twice", at).message)
    }
  }

  /** The first name that is there twice; null for none. */
  private def repeated(names: Array[UTF8String]): UTF8String =
    if (names.length <= ObjectValue.FEW_NAMES) {
      var i = 1
      while (i < names.length) {
        var j = 0
        while (j < i) {
          if (names(i) == names(j)) return names(i)
          j += 1
        }
        i += 1
      }
      null
    } else {
      val seen = new java.util.HashSet[UTF8String](names.length * 2)
      names.find(name => !seen.add(name)).orNull
    }

  private def number(parser: JsonParser): NumberValue = {
    val found = new NumberValue(parser.getText)
    val isSure = found.written.length <= SURE_CHARACTERS && !found.hasExponent
    if (!isSure && found.double.isInfinite)
      throw refusal(parser, s"${Converter.shown(found.written)} does not fit into a 64-bit float")
    found
  }

  private def half(parser: JsonParser): Refusal = refusal(parser, Converter.HALF_CHARACTER.problem)

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

/** Writes values of expressions as compact JSON. NaN and infinite numbers, which JSON does not have, do not come here.
  */
object JsonWriter {

  /** The JSON of a value, with an object's members in their order. */
  def text(value: Any): UTF8String = {
    val out = new JsonText
    write(value, out, sorted = false)
    out.toText
  }

  /** The JSON of a value, with an object's members in alphabetical order, as GlassFlow's toJSON() writes them. */
  def sortedText(value: Any): UTF8String = {
    val out = new JsonText
    write(value, out, sorted = true)
    out.toText
  }

  private def write(value: Any, out: JsonText, sorted: Boolean): Unit = value match {
    case null => out.add("null")
    case text: UTF8String => out.quote(text)
    case number: NumberValue => out.add(number.written)
    case number: java.lang.Double => out.add(realText(number))
    case list: ListValue =>
      out.add('[')
      list.items.indices.foreach { i =>
        if (i > 0) out.add(',')
        write(list.items(i), out, sorted)
      }
      out.add(']')
    case members: ObjectValue =>
      out.add('{')
      val order = if (sorted) members.sorted else members.names.indices.toArray
      order.indices.foreach { i =>
        if (i > 0) out.add(',')
        out.quote(members.names(order(i)))
        out.add(':')
        write(members.values(order(i)), out, sorted)
      }
      out.add('}')
    case other => out.add(other.toString) // a whole number, true or false
  }

  /** A double that an expression has computed: a whole one without a fraction, as in Go. */
  private def realText(number: Double): String =
    if (number == Math.rint(number) && Math.abs(number) < FIRST_INEXACT && !(number == 0 && 1 / number < 0))
      number.toLong.toString
    else number.toString

  // From 2^53 on not every whole number is a double, so digits would look exact that are not.
  private final val FIRST_INEXACT = (1L << 53).toDouble
}
