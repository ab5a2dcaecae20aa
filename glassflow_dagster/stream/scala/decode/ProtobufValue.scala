package glassflow

import java.math.{BigDecimal, BigInteger}
import java.time.{Instant, LocalDate}
import java.util.Base64

import org.apache.spark.unsafe.types.UTF8String

import scala.jdk.CollectionConverters._

/** The value of a field of a message, as ProtobufRecords.parse has read it; not null.
  *
  * In JSON whole numbers are numbers with all their digits, where Protobuf's own JSON has texts for those of 64 bits.
  */
final class ProtobufValue(kind: ProtobufType, isList: Boolean, isMap: Boolean, value: Any) extends FieldSource {
  import ProtobufValue._

  // What the type stands for, of those that Protobuf's own JSON writes in another form than as a message.
  private val special: String = kind match {
    case message: MessageType if !isList && isSpecial(message) => message.name
    case _ => null
  }
  private def parts = value.asInstanceOf[Array[Any]]
  private def part(index: Int): ProtobufValue = of(kind.asInstanceOf[MessageType].fields(index), parts(index))
  private def isWrapper = special != null && WRAPPERS(special)

  /** The value as one of a field of a kind; null for a null of google.protobuf.Value. */
  def convert(kind: String): Any =
    if (special == VALUE && isNullValue) null
    else if (isWrapper) part(0).convert(kind)
    else if (special == VALUE) chosen.convert(kind)
    else FieldSource.convert(this, kind)

  /** Of google.protobuf.Value: the one of its parts that is there. */
  private def chosen: ProtobufValue = part(parts.indexWhere(_ != null))
  private def isNullValue = parts.forall(_ == null) || parts(0) != null

  override def text: UTF8String = (kind, value) match {
    case (_, found: UTF8String) if !isList => found
    case (ScalarType("bytes"), found: Array[Byte]) => UTF8String.fromBytes(Base64.getEncoder.encode(found))
    case (enumeration: EnumType, number: java.lang.Long) if !isList =>
      val name = enumeration.names.getOrElse(number.toInt, throw new Refusal(s"$number is no value of $typeName"))
      UTF8String.fromString(name)
    case _ => special match {
        case TIMESTAMP => UTF8String.fromString(instant.toString)
        case DURATION => UTF8String.fromString(s"${number.toPlainString}s")
        case DATE => UTF8String.fromString(date)
        case DECIMAL => UTF8String.fromString(number.toPlainString)
        case FIELD_MASK => UTF8String.fromString(listOf(parts(0)).map(_.toString).mkString(","))
        case _ => throw refusal("string")
      }
  }

  override def truth: Boolean = kind match {
    case ScalarType("bool") if !isList => value.asInstanceOf[Long] != 0
    case _ => throw refusal("bool")
  }

  override def real: Double = value match {
    case found: java.lang.Double => found
    case found: java.lang.Float => found.toDouble
    case _ => if (isLong) FieldSource.real(long) else FieldSource.real(number)
  }

  override def isLong: Boolean = value.isInstanceOf[java.lang.Long] && !isTruth && (!isUnsigned || long >= 0)
  override def long: Long = value.asInstanceOf[Long]
  private def isTruth = kind == ScalarType("bool")
  private def isUnsigned = kind == ScalarType("uint64") || kind == ScalarType("fixed64")

  override def number: BigDecimal = value match {
    case _ if isTruth || isList => throw refusal("a number")
    case found: java.lang.Long if isUnsigned => new BigDecimal(new BigInteger(java.lang.Long.toUnsignedString(found)))
    case found: java.lang.Long => BigDecimal.valueOf(found)
    case found: java.lang.Double =>
      FieldSource.requireFinite(found)
      new BigDecimal(found.toString)
    case found: java.lang.Float =>
      FieldSource.requireFinite(found.toDouble)
      new BigDecimal(found.toString)
    case _ => special match {
        case TIMESTAMP | DURATION => seconds
        case DECIMAL => decimal
        case _ => throw refusal("a number")
      }
  }

  override def isArray: Boolean = isList && !isMap || special == LIST
  override def isObject: Boolean =
    isMap || special == STRUCT || !isList && special == null && kind.isInstanceOf[MessageType]

  override def json: UTF8String = {
    val out = new JsonText
    write(out)
    out.toText
  }

  private def write(out: JsonText): Unit =
    if (isMap) writeMap(out)
    else if (isList) {
      out.add('[')
      separated(out, listOf(value))(item => new ProtobufValue(kind, false, false, item).write(out))
      out.add(']')
    } else
      (kind, value) match {
        case (ScalarType("bool"), _) => out.add(truth.toString)
        case (enumeration: EnumType, number: java.lang.Long) if !enumeration.names.contains(number.toInt) =>
          out.add(number.toString)
        case (_: EnumType, _) => out.quote(text)
        case (_, found: UTF8String) => out.quote(found)
        case (ScalarType("bytes"), _) => out.quote(text)
        case (_: ScalarType, found: java.lang.Double) => writeReal(found, found.toString, out)
        case (_: ScalarType, found: java.lang.Float) => writeReal(found.toDouble, found.toString, out)
        case (_: ScalarType, _) => out.add(number.toPlainString)
        case (message: MessageType, _) => writeMessage(message, out)
      }

  private def writeReal(number: Double, text: String, out: JsonText): Unit =
    if (out.quotesNaN && !java.lang.Double.isFinite(number)) out.quote(UTF8String.fromString(text))
    else {
      FieldSource.requireFinite(number)
      out.add(text)
    }

  private def writeFields(message: MessageType, out: JsonText): Unit = {
    out.add('{')
    val present = message.fields.toSeq.flatMap(field => Option(of(field, parts(field.index))).map(field -> _))
    separated(out, present) { case (field, found) =>
      out.addBytes(field.quoted)
      out.add(':')
      found.write(out)
    }
    out.add('}')
  }

  private def writeMessage(message: MessageType, out: JsonText): Unit = special match {
    case null => writeFields(message, out)
    case VALUE => if (isNullValue) out.add("null") else chosen.write(out)
    case STRUCT | LIST => part(0).write(out)
    case DECIMAL => out.add(number.toPlainString)
    case _ if isWrapper => part(0).write(out)
    case _ => out.quote(text)
  }

  private def writeMap(out: JsonText): Unit = {
    val entry = kind.asInstanceOf[MessageType]
    out.add('{')
    separated(out, entries(entry, value.asInstanceOf[java.util.List[Any]]).asScala.toSeq) { case (key, found) =>
      out.quote(UTF8String.fromString(key))
      out.add(':')
      of(entry.fields(1), found).write(out)
    }
    out.add('}')
  }

  /** As the key of a map in JSON. */
  private def keyText: String = if (isTruth) truth.toString
  else if (kind == ScalarType("string")) text.toString
  else number.toPlainString

  private def separated[T](out: JsonText, items: Seq[T])(each: T => Unit): Unit = {
    var isFirst = true
    items.foreach { item =>
      if (!isFirst) out.add(',')
      isFirst = false
      each(item)
    }
  }

  private def longPart(index: Int): Long = if (parts(index) == null) 0 else parts(index).asInstanceOf[Long]

  private def instant: Instant =
    try {
      val (seconds, nanos) = (longPart(0), longPart(1))
      if (nanos < 0 || nanos >= PER_SECOND) throw new Refusal(s"$nanos are no nanoseconds of a second")
      Instant.ofEpochSecond(seconds, nanos)
    } catch {
      case _: java.time.DateTimeException => throw new Refusal(s"${longPart(0)} s is no time that can be written")
    }

  /** Of a timestamp or a duration. */
  private def seconds: BigDecimal = {
    val found = BigDecimal.valueOf(longPart(0)).add(BigDecimal.valueOf(longPart(1), NANO_DIGITS)).stripTrailingZeros
    if (found.scale < 0) found.setScale(0) else found
  }

  private def decimal: BigDecimal = {
    val bytes = Option(parts(0)).fold(Array.emptyByteArray)(_.asInstanceOf[Array[Byte]])
    FieldSource.decimal(bytes, longPart(2).toInt)
  }

  private def date: String = {
    val Seq(year, month, day) = Seq(0, 1, 2).map(longPart(_).toInt)
    try LocalDate.of(year, month, day).toString
    catch { case _: java.time.DateTimeException => throw new Refusal(s"year $year, month $month, day $day is no date") }
  }

  private def typeName: String = kind.name
  override def refusal(wanted: String): Refusal =
    new Refusal(s"expected $wanted, got ${if (isMap) "map" else if (isList) s"repeated $typeName" else typeName}")
}

object ProtobufValue {
  private final val TIMESTAMP = "google.protobuf.Timestamp"
  private final val DURATION = "google.protobuf.Duration"
  private final val FIELD_MASK = "google.protobuf.FieldMask"
  private final val STRUCT = "google.protobuf.Struct"
  private final val VALUE = "google.protobuf.Value"
  private final val LIST = "google.protobuf.ListValue"
  private final val DECIMAL = "confluent.type.Decimal"
  private final val DATE = "google.type.Date"
  private val WRAPPERS =
    Seq("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
      .map(name => s"google.protobuf.${name}Value").toSet
  private val SPECIAL = WRAPPERS ++ Set(TIMESTAMP, DURATION, FIELD_MASK, STRUCT, VALUE, LIST, DECIMAL, DATE)
  private final val PER_SECOND = 1000000000L
  private final val NANO_DIGITS = 9

  /** The value of a field; null for one that is absent and has no default. found: see ProtobufRecords.parse. */
  def of(field: ProtobufField, found: Any): ProtobufValue = {
    val value = if (found != null) found else default(field)
    if (value == null) null else new ProtobufValue(field.kind, field.isRepeated, field.isMap, value)
  }

  private def default(field: ProtobufField): Any =
    if (field.isRepeated) java.util.Collections.emptyList[Any]()
    else if (field.default != null) field.default
    else if (field.hasPresence) null
    else
      field.kind match {
        case ScalarType("string") => UTF8String.EMPTY_UTF8
        case ScalarType("bytes") => Array.emptyByteArray
        case ScalarType("double") => Double.box(0)
        case ScalarType("float") => Float.box(0)
        case enumeration: EnumType => Long.box(enumeration.first)
        case _: ScalarType => Long.box(0)
        case _: MessageType | _: UndefinedType => null
      }

  /** The entries of a map: the key, as it stands in JSON, and the value. Of several with one key the last one counts; a
    * key or value that is missing has its default, which of a message is an empty one.
    */
  def entries(entry: MessageType, list: java.util.List[_]): java.util.LinkedHashMap[String, Any] = {
    val found = new java.util.LinkedHashMap[String, Any]()
    val Array(keys, values) = entry.fields
    list.forEach { pair =>
      val Array(key, value) = pair.asInstanceOf[Array[Any]]
      val item = (values.kind, value) match {
        case (message: MessageType, null) => new Array[Any](message.fields.length)
        case _ => value
      }
      found.put(of(keys, key).keyText, item)
    }
    found
  }

  /** Whether a type is a message that stands for another value, such as a time. */
  def isSpecial(kind: ProtobufType): Boolean = kind match {
    case message: MessageType => message.isSpecial && SPECIAL(message.name)
    case _ => false
  }

  /** Write a record's message, as ProtobufRecords.parse has read it, as a JSON object. */
  def writeRecord(message: MessageType, found: Array[Any], out: JsonText): Unit =
    new ProtobufValue(message, false, false, found).writeFields(message, out)

  /** Whether a message is google.protobuf's Struct or Value. */
  def isStruct(message: MessageType): Boolean =
    message.isSpecial && (message.name == STRUCT || message.name == VALUE)

  private def listOf(value: Any): Seq[Any] =
    if (value == null) Nil else value.asInstanceOf[java.util.List[Any]].toArray.toSeq
}
