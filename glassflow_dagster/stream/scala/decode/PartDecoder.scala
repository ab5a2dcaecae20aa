package glassflow

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.types.StructType

/** Decodes a part of records, their value or their key, to the declared fields. */
trait PartDecoder extends Serializable {

  /** See StrictJson. */
  def schema: StructType

  /** Decode the bytes of a record's part, null where it has none. headers: ARRAY<STRUCT<key STRING, value BINARY>>, may
    * be null.
    */
  def decode(bytes: Array[Byte], headers: ArrayData): InternalRow
}

/** The parts of a record, as the specs of decoders and error messages call them. */
object RecordPart {
  final val VALUE = "value"
  final val KEY = "key"
}
