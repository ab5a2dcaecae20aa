package glassflow

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.security.MessageDigest

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types._

/** A row as bytes and back: typed rows pass a stateful operator as one opaque value, which spares it the conversion of
  * every column to an object and back. The bytes are Spark's UnsafeRow; they never outlive the batch.
  */
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

/** A key of one or several parts as bytes: two keys have the same bytes when all parts are equal, and only then, but
  * for the chance of a digest of 128 bits: 10 million long keys have two alike once in 10^24 times. A part's type is
  * fixed by its column, so 1 and "1" never meet. The form is kept in checkpoints: never change it.
  *
  * Form: a leading 1; for each part a byte 1, or 0 for a null; the values of those that are not null; the lengths of
  * those among these that have no fixed one. Spark sorts a batch by its keys, and compares eight bytes at a time before
  * it takes two keys apart: the values come early so that these eight tell most keys from each other. Beyond 24 bytes,
  * a 2 and the first 16 bytes of the SHA-256 of all this: a state has each key twice, and no one can make two keys that
  * meet, as with a faster hash.
  */
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
    KeyBytes.bounded(bytes.toByteArray)
  }

  private def write(out: DataOutputStream, parts: InternalRow, i: Int, lengths: ArrayBuffer[Int]): Unit =
    types(i) match {
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
  val REFUSED: Int = 0
  private val ADMITTED: Int = 1
  private val DIGEST: Int = 2
  // Spark pads a key to a multiple of 8 bytes: a digest and the byte before it take no less.
  private val LONGEST = 24
  private val DIGEST_BYTES = 16

  private val sha256 = ThreadLocal.withInitial[MessageDigest](() => MessageDigest.getInstance("SHA-256"))

  private def bounded(key: Array[Byte]): Array[Byte] =
    if (key.length <= LONGEST) key
    else {
      val short = new Array[Byte](1 + DIGEST_BYTES)
      short(0) = DIGEST.toByte
      System.arraycopy(sha256.get.digest(key), 0, short, 1, DIGEST_BYTES)
      short
    }

  def ofRefused(partition: Int): Array[Byte] =
    java.nio.ByteBuffer.allocate(5).put(REFUSED.toByte).putInt(partition).array
}
