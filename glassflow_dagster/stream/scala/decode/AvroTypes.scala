package glassflow

import java.math.BigDecimal
import java.nio.charset.StandardCharsets.US_ASCII
import java.time.{Instant, LocalDate, LocalTime, ZoneOffset}
import java.time.format.DateTimeFormatter
import java.util.Base64

import org.apache.avro.Schema
import org.apache.avro.Schema.Type
import org.apache.spark.unsafe.types.UTF8String

import scala.jdk.CollectionConverters._

/** A type of a writer's schema: reads one of its values, as a kind of field, as JSON, or not at all.
  *
  * name: as it stands in error messages. depth: how many arrays, maps and records are around the value.
  */
abstract class AvroType(val name: String) {

  /** The type of the value that follows: the branch of a union, whose index is read, and any other type itself. */
  def branch(in: AvroInput): AvroType = this

  def isNull: Boolean = false

  /** The types of the fields of a record, by which nested fields are found; none for other types. */
  def members: Array[AvroMember] = AvroType.NO_MEMBERS

  /** The type of all values of a map; null for other types. */
  def values: AvroType = null

  def skip(in: AvroInput, depth: Int): Unit
  def json(in: AvroInput, out: JsonText, depth: Int): Unit

  def text(in: AvroInput): UTF8String = throw refusal("string")
  def truth(in: AvroInput): Boolean = throw refusal("bool")
  def real(in: AvroInput): Double = throw refusal("float")

  /** A number with all its digits. */
  def number(in: AvroInput): BigDecimal = throw refusal("a number")

  /** Whether `long` reads it, quicker than `number`. */
  def isLong: Boolean = false
  def long(in: AvroInput): Long = throw refusal("int")

  def isArray: Boolean = false

  /** Whether it is an object in JSON. */
  def isObject: Boolean = false

  def refusal(wanted: String): Refusal = new Refusal(s"expected $wanted, got $name")
}

/** A field of a record. */
final class AvroMember(val name: String, val value: AvroType) {
  val quoted: Array[Byte] = JsonText.quoted(name)
}

object AvroType {
  private[glassflow] val NO_MEMBERS = Array.empty[AvroMember]

  /** The type of a schema, with those of its parts. A record within itself is one object, read at any depth. */
  def apply(schema: Schema): AvroType = new Builder().of(schema)

  private class Builder {
    private val records = new java.util.HashMap[String, RecordType]()

    def of(schema: Schema): AvroType = schema.getType match {
      case Type.NULL => NullType
      case Type.BOOLEAN => BooleanType
      case Type.INT => ofInteger(logical(schema), "int")
      case Type.LONG => ofInteger(logical(schema), "long")
      case Type.FLOAT => FloatType
      case Type.DOUBLE => DoubleType
      case Type.STRING => new StringType(if (logical(schema) == "uuid") "uuid" else "string")
      case Type.BYTES => ofBytes(schema, Lengthed)
      case Type.FIXED => ofBytes(schema, Fixed(schema.getFixedSize))
      case Type.ENUM => new EnumType(schema.getEnumSymbols.asScala.toArray)
      case Type.ARRAY => new ArrayType(of(schema.getElementType))
      case Type.MAP => new MapType(of(schema.getValueType))
      case Type.UNION => new UnionType(schema.getTypes.asScala.map(of).toArray)
      case Type.RECORD => records.get(schema.getFullName) match {
          case null =>
            val record = new RecordType
            records.put(schema.getFullName, record)
            record.set(schema.getFields.asScala.map(f => new AvroMember(f.name, of(f.schema))).toArray)
            record
          case known => known
        }
    }

    private def ofInteger(logical: String, plain: String): AvroType = (logical, plain) match {
      case ("date", "int") => new TimeType(logical, plain, days => LocalDate.ofEpochDay(days).toString)
      case ("time-millis", "int") => new TimeType(logical, plain, timeOfDay(_, 1000000L))
      case ("time-micros", "long") => new TimeType(logical, plain, timeOfDay(_, 1000L))
      case ("timestamp-millis" | "timestamp-micros" | "timestamp-nanos", "long") =>
        val perSecond = PER_SECOND(logical.stripPrefix("timestamp-"))
        new TimeType(logical, plain, instant(_, perSecond).toString)
      case ("local-timestamp-millis" | "local-timestamp-micros" | "local-timestamp-nanos", "long") =>
        val perSecond = PER_SECOND(logical.stripPrefix("local-timestamp-"))
        new TimeType(logical, plain, time => LOCAL_TIME.format(instant(time, perSecond).atOffset(ZoneOffset.UTC)))
      case _ => new IntegerType(plain)
    }

    private def ofBytes(schema: Schema, size: Size): AvroType = (logical(schema), size) match {
      // Its attributes: a schema that says "decimal" wrongly has no logical type for Avro's library.
      case ("decimal", _) if schema.getLogicalType != null =>
        new DecimalType(size, schema.getObjectProp("scale").asInstanceOf[Integer])
      case ("uuid", Fixed(UUID_BYTES)) => UuidType
      case ("duration", Fixed(DURATION_BYTES)) => DurationType
      case _ => new BytesType(size)
    }

    /** Also the names that Avro's library does not know; a wrong one counts as none, as its specification demands. */
    private def logical(schema: Schema): String = schema.getProp("logicalType")
  }

  private final val UUID_BYTES = 16
  private final val DURATION_BYTES = 12
  private val PER_SECOND = Map("millis" -> 1000L, "micros" -> 1000000L, "nanos" -> 1000000000L)
  private val LOCAL_TIME = DateTimeFormatter.ISO_LOCAL_DATE_TIME

  private def timeOfDay(time: Long, nanos: Long): String = {
    if (time < 0 || time >= LocalTime.MAX.toNanoOfDay / nanos + 1) throw new Refusal(s"$time is no time of a day")
    DateTimeFormatter.ISO_LOCAL_TIME.format(LocalTime.ofNanoOfDay(time * nanos))
  }

  private def instant(time: Long, perSecond: Long): Instant = {
    val nanos = Math.floorMod(time, perSecond) * (PER_SECOND("nanos") / perSecond)
    try Instant.ofEpochSecond(Math.floorDiv(time, perSecond), nanos)
    catch { case _: java.time.DateTimeException => throw new Refusal(s"$time is no time that can be written") }
  }

  private def enter(depth: Int): Int = {
    if (depth >= SchemaDecoder.DEEPEST)
      throw new Refusal(s"invalid Avro: arrays, maps and records more than ${SchemaDecoder.DEEPEST} deep")
    depth + 1
  }

  private object NullType extends AvroType("null") {
    override def isNull: Boolean = true
    override def skip(in: AvroInput, depth: Int): Unit = ()
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = out.add("null")
  }

  private object BooleanType extends AvroType("boolean") {
    override def skip(in: AvroInput, depth: Int): Unit = in.boolean()
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = out.add(in.boolean().toString)
    override def truth(in: AvroInput): Boolean = in.boolean()
  }

  private class IntegerType(name: String) extends AvroType(name) {
    private val isInt = name == "int"
    override def skip(in: AvroInput, depth: Int): Unit = in.long()
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = out.add(long(in).toString)
    override def isLong: Boolean = true
    override def long(in: AvroInput): Long = if (isInt) in.int() else in.long()
    override def real(in: AvroInput): Double = FieldSource.real(long(in))
    override def number(in: AvroInput): BigDecimal = BigDecimal.valueOf(long(in))
  }

  /** A date or time: an integer, which as a text is in the form of ISO 8601. */
  private class TimeType(name: String, plain: String, written: Long => String) extends AvroType(name) {
    private val integer = new IntegerType(plain)
    override def skip(in: AvroInput, depth: Int): Unit = in.long()
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = {
      out.add('"')
      out.add(written(integer.long(in)))
      out.add('"')
    }
    override def text(in: AvroInput): UTF8String = UTF8String.fromString(written(integer.long(in)))
    override def isLong: Boolean = true
    override def long(in: AvroInput): Long = integer.long(in)
    override def real(in: AvroInput): Double = integer.real(in)
    override def number(in: AvroInput): BigDecimal = integer.number(in)
  }

  private object FloatType extends AvroType("float") {
    override def skip(in: AvroInput, depth: Int): Unit = in.skip(java.lang.Float.BYTES)
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = {
      val value = in.float()
      FieldSource.requireFinite(value)
      out.add(value.toString)
    }
    override def real(in: AvroInput): Double = in.float().toDouble
    override def number(in: AvroInput): BigDecimal = {
      val value = in.float()
      FieldSource.requireFinite(value)
      new BigDecimal(value.toString)
    }
  }

  private object DoubleType extends AvroType("double") {
    override def skip(in: AvroInput, depth: Int): Unit = in.skip(java.lang.Double.BYTES)
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = {
      val value = in.double()
      FieldSource.requireFinite(value)
      out.add(value.toString)
    }
    override def real(in: AvroInput): Double = in.double()
    override def number(in: AvroInput): BigDecimal = {
      val value = in.double()
      FieldSource.requireFinite(value)
      new BigDecimal(value.toString)
    }
  }

  private class StringType(name: String) extends AvroType(name) {
    override def skip(in: AvroInput, depth: Int): Unit = in.skip(in.length())
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = out.quote(in.text())
    override def text(in: AvroInput): UTF8String = in.text()
  }

  private class EnumType(symbols: Array[String]) extends AvroType("enum") {
    private val texts = symbols.map(UTF8String.fromString)
    override def skip(in: AvroInput, depth: Int): Unit = in.int()
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = out.quote(text(in))
    override def text(in: AvroInput): UTF8String = {
      val index = in.int()
      if (index < 0 || index >= texts.length)
        throw new Refusal(s"invalid Avro: symbol $index of an enum that has ${texts.length}")
      texts(index)
    }
  }

  /** How many bytes a value has: as the value says, or always as many. */
  private sealed trait Size {
    def apply(in: AvroInput): Int
  }
  private object Lengthed extends Size {
    override def apply(in: AvroInput): Int = in.length()
  }
  private final case class Fixed(bytes: Int) extends Size {
    override def apply(in: AvroInput): Int = bytes
  }

  /** Bytes, which as a text are in base64, as in the JSON of Kafka Connect and of Protobuf. */
  private class BytesType(size: Size) extends AvroType(if (size == Lengthed) "bytes" else "fixed") {
    override def skip(in: AvroInput, depth: Int): Unit = in.skip(size(in))
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = {
      out.add('"')
      out.addBytes(encoded(in))
      out.add('"')
    }
    override def text(in: AvroInput): UTF8String = UTF8String.fromBytes(encoded(in))
    private def encoded(in: AvroInput) = Base64.getEncoder.encode(in.take(size(in)))
  }

  private class DecimalType(size: Size, scale: Integer) extends AvroType("decimal") {
    private val digitsAfter = if (scale == null) 0 else scale.intValue
    override def skip(in: AvroInput, depth: Int): Unit = in.skip(size(in))
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = out.add(number(in).toPlainString)
    override def text(in: AvroInput): UTF8String = UTF8String.fromString(number(in).toPlainString)
    override def real(in: AvroInput): Double = FieldSource.real(number(in))
    override def number(in: AvroInput): BigDecimal = FieldSource.decimal(in.take(size(in)), digitsAfter)
  }

  private object UuidType extends AvroType("uuid") {
    override def skip(in: AvroInput, depth: Int): Unit = in.skip(UUID_BYTES)
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = out.quote(text(in))
    override def text(in: AvroInput): UTF8String = {
      val bytes = java.nio.ByteBuffer.wrap(in.take(UUID_BYTES))
      UTF8String.fromString(new java.util.UUID(bytes.getLong, bytes.getLong).toString)
    }
  }

  /** Months, days and milliseconds, each of 32 bits without a sign; as a text in the form of ISO 8601: P1M2DT3.004S. */
  private object DurationType extends AvroType("duration") {
    override def skip(in: AvroInput, depth: Int): Unit = in.skip(DURATION_BYTES)
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = out.quote(text(in))
    override def text(in: AvroInput): UTF8String = {
      val Seq(months, days, millis) = Seq.fill(3)(in.fixed32() & 0xffffffffL)
      val seconds = BigDecimal.valueOf(millis, 3).stripTrailingZeros.toPlainString
      UTF8String.fromBytes(s"P${months}M${days}DT${seconds}S".getBytes(US_ASCII))
    }
  }

  private class ArrayType(items: AvroType) extends AvroType("array") {
    override def isArray: Boolean = true
    override def skip(in: AvroInput, depth: Int): Unit = {
      val inside = enter(depth)
      in.items(items.skip(in, inside))
    }
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = {
      val inside = enter(depth)
      out.add('[')
      var isFirst = true
      in.items {
        if (!isFirst) out.add(',')
        isFirst = false
        items.json(in, out, inside)
      }
      out.add(']')
    }
  }

  private class MapType(override val values: AvroType) extends AvroType("map") {
    override def isObject: Boolean = true
    override def skip(in: AvroInput, depth: Int): Unit = {
      val inside = enter(depth)
      in.items {
        in.skip(in.length())
        values.skip(in, inside)
      }
    }
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = {
      val inside = enter(depth)
      out.add('{')
      var isFirst = true
      in.items {
        if (!isFirst) out.add(',')
        isFirst = false
        out.quote(in.text())
        out.add(':')
        values.json(in, out, inside)
      }
      out.add('}')
    }
  }

  private class RecordType extends AvroType("record") {
    private var fields: Array[AvroMember] = NO_MEMBERS
    def set(members: Array[AvroMember]): Unit = fields = members
    override def members: Array[AvroMember] = fields
    override def isObject: Boolean = true
    override def skip(in: AvroInput, depth: Int): Unit = {
      val inside = enter(depth)
      in.spend(1)
      var i = 0
      while (i < fields.length) {
        fields(i).value.skip(in, inside)
        i += 1
      }
    }
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = {
      val inside = enter(depth)
      in.spend(1)
      out.add('{')
      var i = 0
      while (i < fields.length) {
        if (i > 0) out.add(',')
        out.addBytes(fields(i).quoted)
        out.add(':')
        fields(i).value.json(in, out, inside)
        i += 1
      }
      out.add('}')
    }
  }

  private class UnionType(branches: Array[AvroType]) extends AvroType("union") {
    override def branch(in: AvroInput): AvroType = {
      val index = in.int()
      if (index < 0 || index >= branches.length)
        throw new Refusal(s"invalid Avro: branch $index of a union that has ${branches.length}, before byte ${in.at}")
      branches(index)
    }
    override def skip(in: AvroInput, depth: Int): Unit = branch(in).skip(in, depth)
    override def json(in: AvroInput, out: JsonText, depth: Int): Unit = branch(in).json(in, out, depth)
  }
}
