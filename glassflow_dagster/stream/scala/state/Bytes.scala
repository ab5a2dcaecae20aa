package glassflow

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.security.MessageDigest

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types._

/** Packs a row into bytes and unpacks it: a row then passes a stateful operator as one opaque value, so that the
  * operator need not convert every column to an object and back. The bytes are Spark's UnsafeRow. A packed joined body
  * is kept in the state; other packed rows do not outlive the batch.
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

/** Encodes a key of one or several parts as bytes. Two keys have the same bytes if and only if all parts are equal,
  * except for collisions of a digest of 128 bits: among 10 million long keys two collide once in 10^24 times. The type
  * of a part is that of its column, so 1 and "1" are never compared. The encoding is kept in checkpoints: never change
  * it.
  *
  * Encoding: a byte 1 (ADMITTED); for each part a byte 1, or 0 for a null; the values of the parts that are not null;
  * the lengths of those values that have no fixed length. Spark sorts a batch by its keys, and compares their first
  * eight bytes before it compares the rest: the values come early so that eight bytes tell most keys apart. A key of
  * more than 24 bytes is replaced by a byte 2 (DIGEST) and the first 16 bytes of the SHA-256 of the encoding: the state
  * stores each key twice, and unlike with a faster hash nobody can construct two keys that collide.
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
  // The first byte of the group of records without a key (dead letters, dropped records): different from any key's.
  val REFUSED: Int = 0
  private val ADMITTED: Int = 1
  private val DIGEST: Int = 2
  // Spark pads a key to a multiple of 8 bytes: a digest and the byte before it take 24, too.
  private val LONGEST = 24
  private val DIGEST_BYTES = 16

  private val sha256 = ThreadLocal.withInitial[MessageDigest](() => MessageDigest.getInstance("SHA-256"))

  /** The key itself, or its digest where it is too long. */
  private def bounded(key: Array[Byte]): Array[Byte] =
    if (key.length <= LONGEST) key
    else {
      val short = new Array[Byte](1 + DIGEST_BYTES)
      short(0) = DIGEST.toByte
      System.arraycopy(sha256.get.digest(key), 0, short, 1, DIGEST_BYTES)
      short
    }

  /** The group of a Kafka partition's records without a key. */
  def ofRefused(partition: Int): Array[Byte] =
    java.nio.ByteBuffer.allocate(5).put(REFUSED.toByte).putInt(partition).array
}
