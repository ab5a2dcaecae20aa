package glassflow

import com.fasterxml.jackson.core.{JsonParser, JsonToken}
import org.apache.spark.unsafe.types.UTF8String

import Converter._

class Arrays(is: ColumnSpec) extends Converter(is) {
  private val elements = Converter(is.inner.head)

  override protected def wanted: String = "array"
  override protected def nullRemedy: String =
    "no Array can be; output field ?? [] in a transform, with output_type array"

  override protected def putArray(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError = {
    val start = out.length
    var count = 0
    while (parser.nextToken() != JsonToken.END_ARRAY) {
      val error = elements.json(parser, json, out)
      if (error != null) return error.in(s"[$count]")
      count += 1
    }
    out.insertVarint(start, count)
    null
  }
}

/** Map(K, V), from an object: the keys are read from the names of its members. If V is String, every value becomes a
  * string, as in GlassFlow: null becomes an empty one, a number its digits, an array or object its JSON text. A missing
  * or null object becomes an empty map.
  */
class Maps(is: ColumnSpec) extends Converter(is) {
  private val keys = Converter(is.inner(0))
  private val values = Converter(is.inner(1))
  private val ofTexts = is.inner(1).name == "String"

  override protected def wanted: String = "object"

  override def ofNull(out: RowBinary): ConversionError = {
    notNull(out)
    out.varint(0)
    null
  }

  override protected def putMembers(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError = {
    val start = out.length
    val names = new java.util.HashSet[String]()
    while (parser.nextToken() != JsonToken.END_OBJECT) {
      val name = parser.currentName()
      if (!Utf8.hasForm(name)) return HALF_CHARACTER
      if (!names.add(name)) return ConversionError("is given twice", memberPath(name))
      parser.nextToken()
      var error = keys.key(UTF8String.fromString(name), out)
      if (error == null) error = if (ofTexts) putAsText(parser, json, out) else values.json(parser, json, out)
      if (error != null) return error.in(memberPath(name))
    }
    out.insertVarint(start, names.size)
    null
  }

  /** The value at the parser's position as a string. */
  private def putAsText(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError =
    parser.currentToken() match {
      case JsonToken.VALUE_NULL =>
        if (is.inner(1).nullable) values.ofNull(out) else values.text(UTF8String.EMPTY_UTF8, out)
      case JsonToken.VALUE_NUMBER_INT =>
        values.text(UTF8String.fromString(if (parser.getText == "-0") "0" else parser.getText), out)
      case JsonToken.VALUE_NUMBER_FLOAT =>
        val error = floatError(parser)
        if (error == null) values.text(UTF8String.fromString(Maps.floatText(parser.getDoubleValue)), out) else error
      case JsonToken.VALUE_TRUE => values.text(UTF8String.fromString("true"), out)
      case JsonToken.VALUE_FALSE => values.text(UTF8String.fromString("false"), out)
      case _ => values.json(parser, json, out)
    }
}

object Maps {
  // Go's %g prints an exponent below 1e-4 and from 1e6 on: the exponents between them.
  private val LEAST_PLAIN = -4
  private val GREATEST_PLAIN = 5

  /** A float as Go's %g prints it. */
  def floatText(value: Double): String = {
    if (value == 0) return if (1 / value < 0) "-0" else "0"
    val shortestDigits = shortest(value)
    val exponent = shortestDigits.precision - shortestDigits.scale - 1
    if (exponent < LEAST_PLAIN || exponent > GREATEST_PLAIN) {
      val digits = shortestDigits.unscaledValue.abs.toString
      val fraction = if (digits.length > 1) "." + digits.tail else ""
      val (sign, exponentSign) = (if (value < 0) "-" else "", if (exponent < 0) "-" else "+")
      f"$sign${digits.head}${fraction}e$exponentSign${math.abs(exponent)}%02d"
    } else shortestDigits.toPlainString
  }
}

/** Tuple(...), from an array with as many elements; a Tuple with named elements also from an object, whose other
  * members are ignored.
  */
class Tuples(is: ColumnSpec) extends Converter(is) {
  private val elements = is.inner.map(Converter(_))
  private val names = is.names
  private val indexes = names.zipWithIndex.toMap

  override protected def wanted: String = if (names.isEmpty) "array" else "object or array"
  override protected def nullRemedy: String = "make it so, or output field ?? VALUE in a transform"

  override protected def putArray(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError = {
    var i = 0
    while (parser.nextToken() != JsonToken.END_ARRAY) {
      if (i == elements.length) return ConversionError(s"more than the $i elements of ${is.base}")
      val error = elements(i).json(parser, json, out)
      if (error != null) return error.in(s"[$i]")
      i += 1
    }
    if (i < elements.length) ConversionError(s"$i elements, but ${is.base} has ${elements.length}") else null
  }

  override protected def putMembers(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError = {
    if (names.isEmpty) return super.putMembers(parser, json, out)
    val start = out.length
    // The bytes of each element in `out`, in the order of the object's members.
    val found = Array.fill[Option[(Int, Int)]](elements.length)(None)
    while (parser.nextToken() != JsonToken.END_OBJECT) {
      val index = indexes.getOrElse(parser.currentName(), -1)
      parser.nextToken()
      if (index < 0) parser.skipChildren()
      else {
        if (found(index).nonEmpty) return ConversionError("is given twice", memberPath(names(index)))
        val from = out.length
        val error = elements(index).json(parser, json, out)
        if (error != null) return error.in(memberPath(names(index)))
        found(index) = Some((from, out.length))
      }
    }
    elements.indices.find(i => found(i).isEmpty && !elements(i).is.nullable) match {
      case Some(i) => ConversionError(s"is missing, but ${elements(i).is.text} is not Nullable", memberPath(names(i)))
      case None =>
        out.reorder(start, found)
        null
    }
  }
}

/** JSON, from an object: its text is passed on, after a check for values that ClickHouse would reject (a path that is
  * there twice, floats beyond 64 bits) or change (it makes integers beyond 64 bits texts, and cuts the numbers of typed
  * paths to fit).
  */
class JsonObjects(is: ColumnSpec) extends Converter(is) {
  private val typed: Map[MemberPath, Converter] =
    is.names.zip(is.inner).collect {
      case (path, of) if isInteger(of.name) => MemberPath.ROOT.member(path) -> Converter(of)
    }.toMap

  override protected def wanted: String = "object"
  override protected def nullRemedy: String = "make it so, or output field ?? {} in a transform"
  override def text(value: UTF8String, out: RowBinary): ConversionError = jsonValue(value, out)

  override protected def putMembers(parser: JsonParser, json: Array[Byte], out: RowBinary): ConversionError = {
    val start = parser.currentTokenLocation().getByteOffset.toInt
    val error = membersError(parser, json, MemberPath.ROOT, "", new java.util.HashSet[MemberPath]())
    if (error == null) {
      val size = parser.currentLocation().getByteOffset.toInt - start
      out.varint(size)
      out.raw(json, start, size)
    }
    error
  }

  /** The first error in an object's members, or null. path: the object's path from the column's root or the nearest
    * array; at: its path in the whole value, for the error; seen: the paths that already have a value.
    */
  private def membersError(
      parser: JsonParser,
      json: Array[Byte],
      path: MemberPath,
      at: String,
      seen: java.util.HashSet[MemberPath]
  ): ConversionError = {
    val names = new java.util.HashSet[String]()
    while (parser.nextToken() != JsonToken.END_OBJECT) {
      val name = parser.currentName()
      if (!Utf8.hasForm(name)) return HALF_CHARACTER
      val inner = path.member(name)
      val innerAt = at + memberPath(name)
      val token = parser.nextToken()
      if (!names.add(name) || token != JsonToken.START_OBJECT && !seen.add(inner))
        return ConversionError("is given twice", innerAt)
      val error = if (token == JsonToken.START_OBJECT) membersError(parser, json, inner, innerAt, seen)
      else valueError(parser, json, innerAt, typed.getOrElse(inner, null))
      if (error != null) return error
    }
    null
  }

  /** The error in the value at the parser's position, or null. values: the converter of a typed path, else null. */
  private def valueError(parser: JsonParser, json: Array[Byte], at: String, values: Converter): ConversionError =
    parser.currentToken() match {
      case JsonToken.VALUE_NUMBER_INT | JsonToken.VALUE_NUMBER_FLOAT =>
        val error = if (values == null) numberError(parser) else values.json(parser, json, new RowBinary)
        if (error == null) null else error.in(at)
      case JsonToken.VALUE_STRING => if (Utf8.hasForm(parser.getText)) null else HALF_CHARACTER.in(at)
      case JsonToken.START_OBJECT =>
        membersError(parser, json, MemberPath.ROOT, at, new java.util.HashSet[MemberPath]())
      case JsonToken.START_ARRAY =>
        var i = 0
        while (parser.nextToken() != JsonToken.END_ARRAY) {
          val error = valueError(parser, json, s"$at[$i]", null)
          if (error != null) return error
          i += 1
        }
        null
      case _ => null
    }

  /** The ConversionError for a number beyond 64 bits, else null. */
  private def numberError(parser: JsonParser): ConversionError =
    if (isLong(parser)) null
    else if (parser.currentToken() == JsonToken.VALUE_NUMBER_FLOAT) floatError(parser)
    else {
      val big = parser.getBigIntegerValue
      if (big.signum > 0 && big.bitLength <= 64) null else ConversionError(s"${shown(big)} does not fit into 64 bits")
    }

  private def isInteger(name: String): Boolean = name.matches("U?Int\\d+")
}

/** A path in a JSON column, such as a.b.c, as a hash of 128 bits: as texts, the paths of a record of 1 MB with a
  * thousand nested objects would take half a GB. If two paths of a record had the same hash, it would become a dead
  * letter.
  */
final case class MemberPath(one: Long, other: Long) {
  def member(name: String): MemberPath = {
    var (a, b) = (one, other)
    if (this != MemberPath.ROOT) {
      a = MemberPath.next(a, '.', MemberPath.ONE)
      b = MemberPath.next(b, '.', MemberPath.OTHER)
    }
    var i = 0
    while (i < name.length) {
      a = MemberPath.next(a, name.charAt(i), MemberPath.ONE)
      b = MemberPath.next(b, name.charAt(i), MemberPath.OTHER)
      i += 1
    }
    MemberPath(a, b)
  }
}

object MemberPath {
  val ROOT: MemberPath = MemberPath(1, 1)

  // The factors of the two hashes: odd, with about as many ones as zeros, so that a character changes all higher bits.
  private val ONE = 0x9e3779b97f4a7c15L
  private val OTHER = 0xc2b2ae3d27d4eb4fL

  private def next(hash: Long, character: Char, factor: Long): Long = {
    val mixed = (hash ^ character) * factor
    mixed ^ mixed >>> 29
  }
}
