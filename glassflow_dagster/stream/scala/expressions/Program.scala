package glassflow

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types.{StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String

import scala.jdk.CollectionConverters._

/** Evaluates the expressions of one stage for a record: a filter's condition, or the outputs of a transform.
  *
  * @param spec
  *   JSON, as stream/stages/expressions_in_scala.py writes it: {"fields": [[kind, whether it is in the first struct,
  *   its position there or in the second one], ...], "outputs": [...]}
  */
class Program(spec: String) extends Serializable {
  @transient private lazy val tree = new ObjectMapper().readTree(spec)
  // Each task has terms and an evaluation of its own.
  @transient private lazy val outputs: Array[Output] = {
    var kept = 0
    val fields = Program.elements(tree.get("fields")).zipWithIndex.map { case (node, index) =>
      ProgramField(index, node.get(0).asText, node.get(1).asBoolean, node.get(2).asInt)
    }
    Program.elements(tree.get("outputs")).map { node =>
      val output = Output(node, fields, kept)
      kept += output.kept
      output
    }
  }
  @transient private lazy val evaluation =
    new Evaluation(tree.get("fields").size, outputs.map(_.kept).sum)

  /** A column for each output, and `_reason`: why the first of them that cannot be evaluated cannot; NULL where all
    * can.
    */
  def schema: StructType =
    outputs.foldLeft(new StructType())((schema, output) => schema.add(output.name, FieldTerm.dataType(output.kind)))
      .add("_reason", StringType)

  /** Evaluate the outputs. struct, computed: the columns of the fields, of the types that carry their kinds. */
  def evaluate(struct: InternalRow, computed: InternalRow): InternalRow = {
    val values = new Array[Any](outputs.length + 1)
    evaluation.begin(struct, computed)
    var i = 0
    while (i < outputs.length) {
      try values(i) = outputs(i).value(evaluation)
      catch {
        case refusal: Refusal =>
          if (values(outputs.length) == null)
            values(outputs.length) = UTF8String.fromString(outputs(i).prefix + refusal.getMessage)
      }
      i += 1
    }
    new GenericInternalRow(values)
  }
}

/** A field that a program reads: its number, its kind, and its position in the first or the second struct. */
final case class ProgramField(number: Int, kind: String, isInStruct: Boolean, position: Int)

object Program {
  def elements(node: JsonNode): Array[JsonNode] = node.elements.asScala.toArray

  /** The kind of the elements of a list that an expression makes. */
  def elementKind(listKind: String): String = listKind match {
    case "strings" => "string"
    case "ints" => "int"
    case "floats" => "float"
    case "bools" => "bool"
    case _ => "any"
  }
}
