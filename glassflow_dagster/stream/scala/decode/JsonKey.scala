package glassflow

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String

/** Decodes keys that are JSON objects, with or without a schema id before them or in a header.
  *
  * @param spec
  *   JSON: as of SchemaDecoder, of which it has "fields" and "schema_id"
  */
class JsonKey(spec: String) extends PartDecoder {
  private val node = new ObjectMapper().readTree(spec)
  private val json = new StrictJson(node.get("fields").toString, RecordPart.KEY)
  private val hasId = node.get("schema_id").asBoolean

  override val schema: StructType = json.schema

  override def decode(key: Array[Byte], headers: ArrayData): InternalRow =
    if (!hasId || SchemaId.header(headers, RecordPart.KEY) != null) json.decode(key)
    else
      try {
        val length = SchemaId.length(key, "the key")
        json.decode(java.util.Arrays.copyOfRange(key, length, key.length))
      } catch {
        case refusal: Refusal =>
          val values = new Array[Any](schema.length)
          values(schema.length - 1) = UTF8String.fromString(refusal.getMessage)
          new GenericInternalRow(values)
      }
}
