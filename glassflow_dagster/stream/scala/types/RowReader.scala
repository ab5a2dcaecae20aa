package glassflow

import java.math.BigInteger

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** Reads the values of a row that is in RowBinary, as far as they are compared with those of a table: whole numbers of
  * up to 64 bits, texts, Booleans, UUIDs (in lower case), IPv4 addresses (as numbers), dates, and times of up to
  * microseconds. All others are skipped, and NULL in the result.
  *
  * @param spec
  *   JSON: [{"column": name, "type": see ColumnSpec}, ...], in the order of the row's values
  */
class RowReader(spec: String) extends Serializable {
  import RowReader._

  @transient private lazy val columns = readSpec(spec)

  /** One field per column, of the name of the column. */
  val schema: StructType = StructType(readSpec(spec).map { case (name, is) => StructField(name, sqlType(is)) })

  def read(row: Array[Byte]): InternalRow = {
    val from = new Source(row)
    val values = columns.map { case (_, is) => value(is, from) }
    new GenericInternalRow(values)
  }
}

object RowReader {
  private val UINT_DIGITS = 20
  private val MICRO_DIGITS = 6

  private def readSpec(spec: String): Array[(String, ColumnSpec)] = {
    val nodes = new ObjectMapper().readTree(spec)
    Array.tabulate(nodes.size)(i => nodes.get(i).get("column").asText -> ColumnSpec(nodes.get(i).get("type")))
  }

  private def sqlType(is: ColumnSpec): DataType = is.name match {
    case "UInt64" => DecimalType(UINT_DIGITS, 0)
    case "Int8" | "Int16" | "Int32" | "Int64" | "UInt8" | "UInt16" | "UInt32" | "IPv4" => LongType
    case "Bool" => BooleanType
    case "Date" | "Date32" => DateType
    case "DateTime" => TimestampType
    case "DateTime64" if is.numbers.head <= MICRO_DIGITS => TimestampType
    case _ => StringType
  }

  private def value(is: ColumnSpec, from: Source): Any =
    if (is.nullable && from.int8 == 1) null
    else is.name match {
      case "Int8" => from.int8.toLong
      case "UInt8" => from.int8 & 0xffL
      case "Int16" => from.int16.toLong
      case "UInt16" => from.int16 & 0xffffL
      case "Int32" => from.int32.toLong
      case "UInt32" | "IPv4" => from.int32 & 0xffffffffL
      case "Int64" => from.int64
      case "UInt64" => Decimal(new java.math.BigDecimal(unsigned(from.int64)), UINT_DIGITS, 0)
      case "Bool" => from.int8 == 1
      case "String" => from.text
      case "UUID" => uuid(from.int64, from.int64)
      case "Enum8" => nameOf(is, from.int8)
      case "Enum16" => nameOf(is, from.int16)
      case "Date" => from.int16 & 0xffff
      case "Date32" => from.int32
      case "DateTime" => (from.int32 & 0xffffffffL) * 1000000L
      case "DateTime64" if is.numbers.head <= MICRO_DIGITS =>
        from.int64 * BigInteger.TEN.pow(MICRO_DIGITS - is.numbers.head).longValue
      case _ =>
        skip(is, from)
        null
    }

  /** Skip a value, after its byte for NULL. */
  private def skip(is: ColumnSpec, from: Source): Unit = is.name match {
    case "Float32" => from.skip(4)
    case "Float64" | "DateTime64" => from.skip(8)
    case "Int128" | "UInt128" | "IPv6" => from.skip(16)
    case "Int256" | "UInt256" => from.skip(32)
    case "Decimal" => from.skip(Decimals.size(is.numbers.head))
    case "FixedString" => from.skip(is.numbers.head)
    case "JSON" => from.text
    case "Array" => (0 until from.varint).foreach(_ => value(is.inner.head, from))
    case "Map" => (0 until from.varint).foreach(_ => is.inner.foreach(value(_, from)))
    case "Tuple" => is.inner.foreach(value(_, from))
  }

  private def unsigned(value: Long): BigInteger = new BigInteger(java.lang.Long.toUnsignedString(value))

  private def uuid(high: Long, low: Long): UTF8String = UTF8String.fromString(new java.util.UUID(high, low).toString)

  private def nameOf(is: ColumnSpec, number: Int): UTF8String =
    UTF8String.fromString(is.names(is.numbers.indexOf(number)))

  /** The bytes of a row, read one value after the other. */
  private class Source(bytes: Array[Byte]) {
    private var at = 0

    def skip(size: Int): Int = {
      at += size
      at - size
    }

    def int8: Int = bytes(skip(1))
    def int16: Int = Platform.getShort(bytes, Platform.BYTE_ARRAY_OFFSET + skip(2))
    def int32: Int = Platform.getInt(bytes, Platform.BYTE_ARRAY_OFFSET + skip(4))
    def int64: Long = Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + skip(8))

    def varint: Int = {
      var (number, shift, byte) = (0, 0, int8)
      while (byte < 0) {
        number |= (byte & 0x7f) << shift
        shift += 7
        byte = int8
      }
      number | byte << shift
    }

    def text: UTF8String = {
      val size = varint
      UTF8String.fromBytes(bytes, skip(size), size)
    }
  }
}
