package glassflow

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Converts a record's fields to a row of the table, strictly: a value that its column would change, cut off or reject
  * makes the record a dead letter. The first error, in the order of the columns, is its reason.
  *
  * @param spec
  *   JSON: [{"column": name, "kind": the field's kind, "type": see ColumnSpec}, ...]
  */
class ColumnMapper(spec: String) extends Serializable {
  import ColumnMapper._

  @transient private lazy val columns: Array[MappedColumn] = readSpec(spec)

  /** row: one field per mapped column, NULL for a dead letter; reason: why it is one, NULL for a good record. */
  val schema: StructType = StructType(Seq(
    StructField("row", StructType(readSpec(spec).map(c => StructField(c.name, c.values.sqlType)))),
    StructField("reason", StringType)
  ))

  /** Convert a record. fields: one field per mapped column, in the same order, of the type that carries its kind. */
  def convert(fields: InternalRow): InternalRow = {
    val row = new Array[Any](columns.length)
    var i = 0
    while (i < columns.length) {
      columns(i).read(fields, i) match {
        case error: ConversionError =>
          val column = columns(i)
          val reason = s"column '${column.name}' (${column.values.is.text}): ${error.message}"
          return new GenericInternalRow(Array[Any](null, UTF8String.fromString(reason)))
        case value => row(i) = value
      }
      i += 1
    }
    new GenericInternalRow(Array[Any](new GenericInternalRow(row), null))
  }
}

object ColumnMapper {
  // The precision of the Decimal in which StrictJson carries a uint.
  private val UINT_DIGITS = 20

  private class MappedColumn(val name: String, kind: String, val values: Converter) {
    def read(fields: InternalRow, i: Int): Any =
      if (fields.isNullAt(i)) values.ofNull
      else kind match {
        case "string" => values.text(fields.getUTF8String(i))
        case "int" => values.integer(fields.getLong(i))
        case "uint" => values.whole(fields.getDecimal(i, UINT_DIGITS, 0).toJavaBigDecimal)
        case "float" => values.real(fields.getDouble(i))
        case "bool" => values.truth(fields.getBoolean(i))
        case "array" | "map" => values.jsonText(fields.getUTF8String(i))
        case "any" => values.jsonValue(fields.getUTF8String(i))
        case "decimal" | "bigint" | "ubigint" =>
          values.number(new java.math.BigDecimal(fields.getUTF8String(i).toString))
      }
  }

  private def readSpec(spec: String): Array[MappedColumn] = {
    val nodes = new ObjectMapper().readTree(spec)
    Array.tabulate(nodes.size) { i =>
      val node = nodes.get(i)
      new MappedColumn(node.get("column").asText, node.get("kind").asText, Converter(ColumnSpec(node.get("type"))))
    }
  }
}
