package glassflow

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.{FunctionIdentifier, InternalRow}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{
  CodeGenerator,
  CodegenContext,
  EmptyBlock,
  ExprCode,
  FalseLiteral,
  JavaCode
}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.catalyst.expressions.objects.{Invoke, StaticInvoke}
import org.apache.spark.sql.execution.python.SizedMapInArrowStrategy
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** The session extension (spark.sql.extensions=glassflow.Functions): Arrow batches that are limited in bytes
  * (SizedMapInArrowStrategy), and the project's SQL functions:
  *
  *   - glassflow_decode(value BINARY, spec STRING) -> STRUCT: see StrictJson
  *   - glassflow_decode_avro, glassflow_decode_protobuf(value BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>,
  *     spec STRING) -> STRUCT: see AvroDecoder and ProtobufDecoder
  *   - glassflow_add_key(fields STRUCT, key BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>, spec STRING) ->
  *     STRUCT: see KeyFields
  *   - glassflow_split_otlp(value BINARY, is_event BOOLEAN, spec STRING) -> ARRAY<STRUCT>: see OtlpSplitter
  *   - glassflow_headers(headers ARRAY<STRUCT<key STRING, value BINARY>>) -> STRING: see RecordHeaders
  *   - glassflow_evaluate(struct STRUCT, computed STRUCT, program STRING) -> STRUCT: see Program
  *   - glassflow_map(decoded STRUCT, computed STRUCT, spec STRING) -> STRUCT: see ColumnMapper
  *   - glassflow_values(row BINARY, spec STRING) -> STRUCT: see RowReader
  *   - glassflow_key(part, ...) -> BINARY: see KeyBytes
  *   - glassflow_no_key(partition INT) -> BINARY: the group of a Kafka partition's records without a key
  *   - glassflow_shard(key BINARY, partitions INT) -> INT: see Shards; partitions is a literal
  *   - glassflow_pack(row STRUCT) -> BINARY: see RowBytes
  *   - glassflow_unpack(bytes BINARY, schema STRING) -> STRUCT: see RowBytes; schema is Spark's JSON
  *   - glassflow_batch_time(now TIMESTAMP) -> TIMESTAMP: see BatchTime
  *   - glassflow_stage_attempt() -> INT: see StageAttempt
  */
class Functions extends (SparkSessionExtensions => Unit) {
  import Functions._

  override def apply(extensions: SparkSessionExtensions): Unit = {
    register(extensions, "glassflow_decode") { case Seq(value, Text(spec)) =>
      val decoder = new StrictJson(spec)
      // Called for a NULL value, too, as the record then gets a reason.
      Invoke(constant(decoder), "decode", decoder.schema, Seq(OrNull(value)), Seq(BinaryType), propagateNull = false)
    }
    withSchema(extensions, "glassflow_decode_avro")(new AvroDecoder(_))
    withSchema(extensions, "glassflow_decode_protobuf")(new ProtobufDecoder(_))
    register(extensions, "glassflow_add_key") { case Seq(fields, key, headers, Text(spec)) =>
      val decoder = new KeyFields(spec)
      val arguments = Seq(fields, OrNull(key), OrNull(headers))
      val types = Seq(decoder.valueSchema, BinaryType, RecordHeaders.TYPE)
      Invoke(constant(decoder), "add", decoder.schema, arguments, types, propagateNull = false)
    }
    register(extensions, "glassflow_split_otlp") { case Seq(value, isEvent, Text(spec)) =>
      val arguments = Seq(OrNull(value), isEvent)
      val types = Seq(BinaryType, BooleanType)
      Invoke(constant(new OtlpSplitter(spec)), "split", OtlpSplitter.TYPE, arguments, types, propagateNull = false)
    }
    register(extensions, "glassflow_map") { case Seq(decoded, computed, Text(spec)) =>
      MapColumns(decoded, computed, spec)
    }
    register(extensions, "glassflow_values") { case Seq(row, Text(spec)) =>
      val reader = new RowReader(spec)
      Invoke(constant(reader), "read", reader.schema, Seq(row), Seq(BinaryType))
    }
    register(extensions, "glassflow_key") { case parts if parts.nonEmpty => Key(parts) }
    register(extensions, "glassflow_no_key") { case Seq(partition) =>
      StaticInvoke(classOf[KeyBytes], BinaryType, "ofRefused", Seq(partition), Seq(IntegerType), returnNullable = false)
    }
    register(extensions, "glassflow_shard") { case Seq(key, Literal(partitions: Int, IntegerType)) =>
      Invoke(constant(new Shards(partitions)), "of", IntegerType, Seq(key), Seq(BinaryType), returnNullable = false)
    }
    register(extensions, "glassflow_pack") { case Seq(row) => Pack(row) }
    register(extensions, "glassflow_unpack") { case Seq(bytes, Text(json)) =>
      val schema = DataType.fromJson(json).asInstanceOf[StructType]
      Invoke(constant(new RowBytes(schema)), "unpack", schema, Seq(bytes), Seq(BinaryType))
    }
    register(extensions, "glassflow_headers") { case Seq(headers) =>
      StaticInvoke(RecordHeaders.getClass, StringType, "json", Seq(headers), Seq(RecordHeaders.TYPE))
    }
    register(extensions, "glassflow_evaluate") { case Seq(struct, computed, Text(program)) =>
      Evaluate(struct, computed, program)
    }
    register(extensions, "glassflow_batch_time") { case Seq(now) => BatchTime(now) }
    register(extensions, "glassflow_stage_attempt") { case Seq() => StageAttempt() }
    extensions.injectPlannerStrategy(_ => SizedMapInArrowStrategy)
  }

  private def withSchema(extensions: SparkSessionExtensions, name: String)(create: String => SchemaDecoder): Unit =
    register(extensions, name) { case Seq(value, headers, Text(spec)) =>
      val decoder = create(spec)
      val arguments = Seq(OrNull(value), OrNull(headers))
      val types = Seq(BinaryType, RecordHeaders.TYPE)
      Invoke(constant(decoder), "decode", decoder.schema, arguments, types, propagateNull = false)
    }

  private def register(extensions: SparkSessionExtensions, name: String)(
      build: PartialFunction[Seq[Expression], Expression]
  ): Unit =
    extensions.injectFunction((
      FunctionIdentifier(name),
      new ExpressionInfo(classOf[Functions].getName, name),
      (arguments: Seq[Expression]) =>
        build.applyOrElse(
          arguments,
          (_: Seq[Expression]) => throw new IllegalArgumentException(s"$name: wrong arguments")
        )
    ))
}

object Functions {
  private def constant(value: AnyRef): Literal = Literal.fromObject(value, ObjectType(value.getClass))

  private object Text {
    def unapply(e: Expression): Option[String] = e match {
      case Literal(text: UTF8String, _) => Some(text.toString)
      case _ => None
    }
  }

  /** Replaced by a call of RowBytes when a plan is analyzed and the type of its argument is known. */
  case class Pack(child: Expression) extends UnaryExpression with RuntimeReplaceable {
    override lazy val replacement: Expression = {
      val packer = new RowBytes(child.dataType.asInstanceOf[StructType])
      Invoke(constant(packer), "pack", BinaryType, Seq(child), Seq(child.dataType))
    }
    override protected def withNewChildInternal(newChild: Expression): Pack = copy(child = newChild)
  }

  /** Replaced by a call of Program when a plan is analyzed and the types of its arguments are known. */
  case class Evaluate(struct: Expression, computed: Expression, program: String)
      extends BinaryExpression with RuntimeReplaceable {
    override def left: Expression = struct
    override def right: Expression = computed
    override lazy val replacement: Expression = {
      val (evaluated, arguments) = (new Program(program), Seq(struct, computed))
      Invoke(constant(evaluated), "evaluate", evaluated.schema, arguments, arguments.map(_.dataType))
    }
    override protected def withNewChildrenInternal(newLeft: Expression, newRight: Expression): Evaluate =
      copy(struct = newLeft, computed = newRight)
  }

  /** Replaced by a call of ColumnMapper when a plan is analyzed and the types of its arguments are known. */
  case class MapColumns(decoded: Expression, computed: Expression, spec: String)
      extends BinaryExpression with RuntimeReplaceable {
    override def left: Expression = decoded
    override def right: Expression = computed
    override lazy val replacement: Expression = {
      val arguments = Seq(decoded, computed)
      Invoke(constant(new ColumnMapper(spec)), "convert", ColumnMapper.SCHEMA, arguments, arguments.map(_.dataType))
    }
    override protected def withNewChildrenInternal(newLeft: Expression, newRight: Expression): MapColumns =
      copy(decoded = newLeft, computed = newRight)
  }

  /** An argument that is null in Java where it is NULL. Where a CASE has no branch that applies, Spark's code has the
    * value of an earlier row in its variable, and Invoke passes that on.
    */
  case class OrNull(child: Expression) extends UnaryExpression {
    override def dataType: DataType = child.dataType
    override def nullable: Boolean = child.nullable
    override def eval(row: InternalRow): Any = child.eval(row)
    override protected def doGenCode(context: CodegenContext, code: ExprCode): ExprCode = {
      val given = child.genCode(context)
      val javaType = CodeGenerator.javaType(dataType)
      code.copy(
        code = code"""
          ${given.code}
          $javaType ${code.value} = ${given.isNull} ? null : ${given.value};
        """,
        isNull = given.isNull
      )
    }
    override protected def withNewChildInternal(newChild: Expression): OrNull = copy(child = newChild)
  }

  case class Key(parts: Seq[Expression]) extends RuntimeReplaceable {
    override lazy val replacement: Expression = {
      val encoder = new KeyBytes(parts.map(_.dataType).toArray)
      val row = CreateStruct(parts)
      Invoke(constant(encoder), "encode", BinaryType, Seq(row), Seq(row.dataType), returnNullable = false)
    }
    override def children: Seq[Expression] = parts
    override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Key = copy(parts = newChildren)
  }

  /** See glassflow.StageAttempt. */
  case class StageAttempt() extends LeafExpression {
    override def dataType: DataType = IntegerType
    override def nullable: Boolean = false
    override def foldable: Boolean = false
    override lazy val deterministic: Boolean = false
    override def eval(row: InternalRow): Any = glassflow.StageAttempt.ofTask()
    override protected def doGenCode(context: CodegenContext, code: ExprCode): ExprCode = {
      val found = JavaCode.expression("glassflow.StageAttempt.ofTask()", IntegerType)
      code.copy(code = EmptyBlock, isNull = FalseLiteral, value = found)
    }
  }

  /** The time of a micro-batch, with which Spark replaces current_timestamp(). It is passed to the generated Java code
    * as an object, not as a literal: otherwise the code would differ in each batch, so that Spark and Java had to
    * compile it for each batch, and Java never got to optimize it.
    */
  case class BatchTime(child: Expression) extends UnaryExpression {
    override def dataType: DataType = child.dataType
    override def nullable: Boolean = child.nullable
    override def foldable: Boolean = false
    override def eval(row: InternalRow): Any = child.eval(row)
    override protected def doGenCode(context: CodegenContext, code: ExprCode): ExprCode = child match {
      case Literal(micros: Long, TimestampType) =>
        val reference = context.addReferenceObj("batchTime", Long.box(micros))
        code.copy(
          code = EmptyBlock,
          isNull = FalseLiteral,
          value = JavaCode.expression(s"$reference.longValue()", TimestampType)
        )
      case other => other.genCode(context)
    }
    override protected def withNewChildInternal(newChild: Expression): BatchTime = copy(child = newChild)
  }
}
