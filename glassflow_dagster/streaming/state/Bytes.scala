package glassflow

import java.io.{ByteArrayOutputStream, DataOutputStream}

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types._

/** A row as bytes and back: typed rows pass a stateful operator as one opaque value, which spares it the conversion
  * of every column to an object and back. The bytes are Spark's UnsafeRow; they never outlive the batch. */
class RowBytes(schema: StructType) extends Serializable {
  @transient private lazy val projection = UnsafeProjection.create(schema)

  def pack(row: InternalRow): Array[Byte] = if (row == null) null else projection(row).getBytes

  def unpack(bytes: Array[Byte]): InternalRow =
    if (bytes == null) null
    else {
      val row = new UnsafeRow(schema.length)
      row.pointTo(bytes, bytes.length)
      row
    }
}

/** A key of one or several parts as bytes: two keys have the same bytes when all parts are equal, and only then.
  * A part's type is fixed by its column, so 1 and "1" never meet. The form is kept in checkpoints: never change it.
  *
  * Form: a leading 1; for each part a byte 1, or 0 for a null; the values of those that are not null; the lengths of
  * those among these that have no fixed one. Spark sorts a batch by its keys, and compares eight bytes at a time before
  * it takes two keys apart: the values come early so that these eight tell most keys from each other. */
class KeyBytes(types: Array[DataType]) extends Serializable {
  def encode(parts: InternalRow): Array[Byte] = {
    val bytes = new ByteArrayOutputStream(64)
    val out = new DataOutputStream(bytes)
    out.writeByte(KeyBytes.ADMITTED)
    types.indices.foreach(i => out.writeByte(if (parts.isNullAt(i)) 0 else 1))
    val lengths = new ArrayBuffer[Int](types.length)
    var i = 0
    while (i < types.length) {
      if (!parts.isNullAt(i)) write(out, parts, i, lengths)
      i += 1
    }
    lengths.foreach(length => out.writeInt(length))
    bytes.toByteArray
  }

  private def write(out: DataOutputStream, parts: InternalRow, i: Int, lengths: ArrayBuffer[Int]): Unit = types(i) match {
    case StringType =>
      val text = parts.getUTF8String(i).getBytes
      lengths += text.length
      out.write(text)
    case LongType => out.writeLong(parts.getLong(i))
    case BooleanType => out.writeBoolean(parts.getBoolean(i))
    // -0.0 + 0.0 is 0.0: the two zeros are one number.
    case DoubleType => out.writeLong(java.lang.Double.doubleToLongBits(parts.getDouble(i) + 0.0))
    case d: DecimalType =>
      val digits = parts.getDecimal(i, d.precision, d.scale).toJavaBigDecimal.unscaledValue.toByteArray
      lengths += digits.length
      out.write(digits)
    case other => throw new IllegalArgumentException(s"a key cannot be of type ${other.sql}")
  }
}

object KeyBytes {
  // A refused record has no key; its group's name begins with another byte and so never meets a key's.
  val ADMITTED: Int = 1
  val REFUSED: Int = 0

  def ofRefused(partition: Int): Array[Byte] = java.nio.ByteBuffer.allocate(5).put(REFUSED.toByte).putInt(partition).array
}
