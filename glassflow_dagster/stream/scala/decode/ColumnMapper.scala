package glassflow

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Converts a record's fields to a row of the table, strictly: a value that its column would change, cut off or reject
  * makes the record a dead letter. The first error, in the order of the columns, is its reason.
  *
  * A row is one value of bytes, as ClickHouse reads it (RowBinary), from here to the insert: 40 columns cost no more on
  * the way than one.
  *
  * @param spec
  *   JSON: [{"column": name, "kind": the field's kind, "type": see ColumnSpec, "in_struct": whether it is in the first
  *   struct, "position": its place in that one or in the second}, ...]
  */
class ColumnMapper(spec: String) extends Serializable {
  import ColumnMapper._

  @transient private lazy val columns: Array[MappedColumn] = readSpec(spec)
  // Each task has a mapper of its own.
  @transient private lazy val out = new RowBinary

  /** Convert a record. struct, computed: fields of the types that carry their kinds. */
  def convert(struct: InternalRow, computed: InternalRow): InternalRow = {
    out.truncate(0)
    var i = 0
    while (i < columns.length) {
      val error = columns(i).write(struct, computed, out)
      if (error != null) {
        val column = columns(i)
        val reason = s"column '${column.name}' (${column.values.is.text}): ${error.message}"
        return new GenericInternalRow(Array[Any](null, UTF8String.fromString(reason)))
      }
      i += 1
    }
    new GenericInternalRow(Array[Any](out.toArray, null))
  }
}

object ColumnMapper {

  /** row: the values of the mapped columns, NULL for a dead letter; reason: why it is one, NULL for a good record. */
  val SCHEMA: StructType = StructType(Seq(StructField("row", BinaryType), StructField("reason", StringType)))

  // The precision of the Decimal in which StrictJson carries a uint.
  private val UINT_DIGITS = 20

  /** Writes the field with an index, which is not NULL, to a column. */
  private type Writer = (InternalRow, Int, RowBinary) => ConversionError

  private class MappedColumn(
      val name: String,
      kind: String,
      val values: Converter,
      isInStruct: Boolean,
      position: Int
  ) {
    private val writer: Writer = kind match {
      case "string" => (fields, i, out) => values.text(fields.getUTF8String(i), out)
      case "int" => (fields, i, out) => values.integer(fields.getLong(i), out)
      case "uint" => (fields, i, out) => values.whole(fields.getDecimal(i, UINT_DIGITS, 0).toJavaBigDecimal, out)
      case "float" => (fields, i, out) => values.real(fields.getDouble(i), out)
      case "bool" => (fields, i, out) => values.truth(fields.getBoolean(i), out)
      case "array" | "map" => (fields, i, out) => values.jsonText(fields.getUTF8String(i), out)
      case "any" => (fields, i, out) => values.jsonValue(fields.getUTF8String(i), out)
      case "decimal" | "bigint" | "ubigint" =>
        (fields, i, out) => values.number(new java.math.BigDecimal(fields.getUTF8String(i).toString), out)
    }

    def write(struct: InternalRow, computed: InternalRow, out: RowBinary): ConversionError = {
      val fields = if (isInStruct) struct else computed
      if (fields.isNullAt(position)) values.ofNull(out) else writer(fields, position, out)
    }
  }

  private def readSpec(spec: String): Array[MappedColumn] = {
    val nodes = new ObjectMapper().readTree(spec)
    Array.tabulate(nodes.size) { i =>
      val node = nodes.get(i)
      new MappedColumn(
        node.get("column").asText,
        node.get("kind").asText,
        Converter(ColumnSpec(node.get("type"))),
        node.get("in_struct").asBoolean,
        node.get("position").asInt
      )
    }
  }
}
