package glassflow

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String

import scala.jdk.CollectionConverters._

/** Decodes a record's key, and joins its fields with those of the value, which are decoded already, to one row in the
  * order of their declaration: what reads fields need not know which of them are the key's.
  *
  * The key of a record whose value cannot be decoded is not read, as the record is a dead letter anyway.
  *
  * @param spec
  *   JSON: {"fields": all declared fields, see StrictJson, "of_key": which of them are the key's, by index, in the
  *   order in which the decoder has them, "format": the key's, "decoder": the spec of its decoder}
  */
class KeyFields(spec: String) extends Serializable {
  import KeyFields._

  private val node = new ObjectMapper().readTree(spec)
  private val fields: Array[JsonField] = StrictJson.readFields(node.get("fields"))
  private val ofKey: Array[Int] = node.get("of_key").elements.asScala.map(_.asInt).toArray
  private val ofValue: Array[Int] = fields.indices.filterNot(ofKey.contains).toArray
  private val decoder: PartDecoder = node.get("format").asText match {
    case "json" => new JsonKey(node.get("decoder").toString)
    case "avro" => new AvroDecoder(node.get("decoder").toString)
    case "protobuf" => new ProtobufDecoder(node.get("decoder").toString)
  }
  // Of a record without a key.
  private val missing: UTF8String = ofKey.map(fields(_)).find(_.required)
    .map(field => UTF8String.fromString(s"field '${field.name}' is missing: the record has no key")).orNull

  val schema: StructType = StrictJson.schemaOf(fields)

  /** The type of the value's decoded fields. */
  val valueSchema: StructType = StrictJson.schemaOf(ofValue.map(fields(_)))

  /** Return all fields of a record, and the reason why its value or its key cannot be decoded, null for a good one.
    *
    * @param value
    *   of the type valueSchema
    * @param key
    *   may be null
    * @param headers
    *   ARRAY<STRUCT<key STRING, value BINARY>>, may be null
    */
  def add(value: InternalRow, key: Array[Byte], headers: ArrayData): InternalRow = {
    val values = new Array[Any](fields.length + 1)
    val found = if (value.isNullAt(ofValue.length) && key != null) decoder.decode(key, headers) else null
    val reason = reasonOf(value, found, hasKey = key != null)
    if (reason != null) values(fields.length) = reason
    else {
      copy(value, valueSchema, ofValue, values)
      if (found != null) copy(found, decoder.schema, ofKey, values)
    }
    new GenericInternalRow(values)
  }

  private def reasonOf(value: InternalRow, found: InternalRow, hasKey: Boolean): UTF8String =
    if (!value.isNullAt(ofValue.length)) value.getUTF8String(ofValue.length)
    else if (!hasKey) missing
    else if (found.isNullAt(ofKey.length)) null
    else UTF8String.concat(OF_THE_KEY, found.getUTF8String(ofKey.length))
}

object KeyFields {
  private val OF_THE_KEY = UTF8String.fromString("key: ")

  private def copy(row: InternalRow, types: StructType, to: Array[Int], values: Array[Any]): Unit = {
    var i = 0
    while (i < to.length) {
      values(to(i)) = row.get(i, types(i).dataType)
      i += 1
    }
  }
}
