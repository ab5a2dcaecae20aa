package glassflow

import java.nio.ByteBuffer

import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.unsafe.types.UTF8String

/** Confluent's wire format: a schema's id before the encoded event, or in a header of the record.
  *
  * The id is a byte 0 and a number of four bytes, or a byte 1 and a UUID. In the header `__value_schema_id`
  * (`__key_schema_id` for a key), which newer clients write, it is the same, and the value is the event alone.
  */
object SchemaId {
  private val OF_VALUE = UTF8String.fromString("__value_schema_id")
  private val OF_KEY = UTF8String.fromString("__key_schema_id")
  private final val NUMBERED = 0
  private final val UNIQUE = 1
  private final val NUMBER_BYTES = 5
  private final val UNIQUE_BYTES = 17

  /** The bytes of a record's header with the id; null without one.
    *
    * Of several the last one counts, and one without a value says that the id is in the record's value or key itself.
    *
    * @param headers
    *   of RecordHeaders.TYPE, may be null
    * @param part
    *   see RecordPart
    */
  def header(headers: ArrayData, part: String): Array[Byte] =
    RecordHeaders.last(headers, if (part == RecordPart.KEY) OF_KEY else OF_VALUE)

  /** The number of bytes of the id that begins these bytes. Throws Refusal where there is none. place: where they are.
    */
  def length(bytes: Array[Byte], place: String): Int = {
    if (bytes.isEmpty) throw new Refusal(s"$place is empty; a schema id begins it")
    val length = bytes(0) match {
      case NUMBERED => NUMBER_BYTES
      case UNIQUE => UNIQUE_BYTES
      case _ =>
        throw new Refusal(s"no schema id: $place begins neither with the byte 0 and a number nor with 1 and a UUID")
    }
    if (bytes.length < length) throw new Refusal(s"$place is too short to hold a schema id")
    length
  }

  /** The id that begins these bytes, of which there are enough (`length`): a number, or a UUID with hyphens, as text.
    */
  def text(id: Array[Byte]): String = {
    val buffer = ByteBuffer.wrap(id, 1, id.length - 1)
    if (id(0) == NUMBERED) Integer.toUnsignedString(buffer.getInt)
    else new java.util.UUID(buffer.getLong, buffer.getLong).toString
  }
}
