package glassflow

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.{FunctionIdentifier, InternalRow}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, EmptyBlock, ExprCode, FalseLiteral, JavaCode}
import org.apache.spark.sql.catalyst.expressions.objects.{Invoke, StaticInvoke}
import org.apache.spark.sql.execution.python.SizedMapInArrowStrategy
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** What every session with spark.sql.extensions=glassflow.Functions has: Arrow batches that are bounded by their bytes
  * (SizedMapInArrowStrategy), and the project's own SQL functions:
  *
  * glassflow_decode(value BINARY, spec STRING) -> STRUCT: see StrictJson glassflow_map(fields STRUCT, spec STRING) ->
  * STRUCT: see ColumnMapper glassflow_key(part, ...) -> BINARY: see KeyBytes glassflow_no_key(partition INT) -> BINARY:
  * the group of a partition's refused records glassflow_shard(key BINARY, partitions INT) -> INT: see Shards;
  * partitions is a literal glassflow_pack(row STRUCT) -> BINARY: see RowBytes glassflow_unpack(bytes BINARY, schema
  * STRING) -> STRUCT, schema in Spark's JSON form glassflow_batch_time(now TIMESTAMP) -> TIMESTAMP: see BatchTime
  * glassflow_matches(text, pattern STRING) -> BOOLEAN: see GoPattern; NULL where the text is glassflow_stage_attempt()
  * -> INT: how often Spark has begun the task's stage before glassflow_upper(text), glassflow_lower(text),
  * glassflow_trim(text), glassflow_split(text, separator), glassflow_integer(text), glassflow_round(DOUBLE),
  * glassflow_float_text(DOUBLE), glassflow_to_int(DOUBLE): see Scalars; NULL where an argument is
  */
class Functions extends (SparkSessionExtensions => Unit) {
  import Functions._

  override def apply(extensions: SparkSessionExtensions): Unit = {
    register(extensions, "glassflow_decode") { case Seq(value, Text(spec)) =>
      val decoder = new StrictJson(spec)
      // A record without a value has a reason, too: null goes in.
      Invoke(constant(decoder), "decode", decoder.schema, Seq(value), Seq(BinaryType), propagateNull = false)
    }
    register(extensions, "glassflow_map") { case Seq(fields, Text(spec)) => MapColumns(fields, spec) }
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
    val texts = ArrayType(StringType, containsNull = false)
    scalar(extensions, "glassflow_upper", StringType, "upper", StringType)
    scalar(extensions, "glassflow_lower", StringType, "lower", StringType)
    scalar(extensions, "glassflow_trim", StringType, "trim", StringType)
    scalar(extensions, "glassflow_split", texts, "split", StringType, StringType)
    scalar(extensions, "glassflow_integer", LongType, "integer", StringType)
    scalar(extensions, "glassflow_round", DoubleType, "round", DoubleType)
    scalar(extensions, "glassflow_float_text", StringType, "floatText", DoubleType)
    scalar(extensions, "glassflow_to_int", LongType, "toInt", DoubleType)
    register(extensions, "glassflow_matches") { case Seq(text, Text(pattern)) =>
      Invoke(constant(new GoPattern(pattern)), "isIn", BooleanType, Seq(text), Seq(StringType), returnNullable = false)
    }
    register(extensions, "glassflow_batch_time") { case Seq(now) => BatchTime(now) }
    register(extensions, "glassflow_stage_attempt") { case Seq() => StageAttempt() }
    extensions.injectPlannerStrategy(_ => SizedMapInArrowStrategy)
  }

  private def scalar(
      extensions: SparkSessionExtensions,
      name: String,
      gives: DataType,
      method: String,
      takes: DataType*
  ): Unit =
    register(extensions, name) {
      case arguments if arguments.length == takes.length =>
        StaticInvoke(Scalars.getClass, gives, method, arguments, takes)
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

  /** Replaced before a plan runs, when the types of its arguments are known. */
  case class Pack(child: Expression) extends UnaryExpression with RuntimeReplaceable {
    override lazy val replacement: Expression = {
      val packer = new RowBytes(child.dataType.asInstanceOf[StructType])
      Invoke(constant(packer), "pack", BinaryType, Seq(child), Seq(child.dataType))
    }
    override protected def withNewChildInternal(newChild: Expression): Pack = copy(child = newChild)
  }

  case class MapColumns(child: Expression, spec: String) extends UnaryExpression with RuntimeReplaceable {
    override lazy val replacement: Expression = {
      val mapper = new ColumnMapper(spec)
      Invoke(constant(mapper), "convert", mapper.schema, Seq(child), Seq(child.dataType))
    }
    override protected def withNewChildInternal(newChild: Expression): MapColumns = copy(child = newChild)
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

  /** The time of a micro-batch, which Spark has put in place of current_timestamp(), handed to the Java code of the
    * batch instead of written into it: code that differs in a number only would be compiled anew for every batch, by
    * Spark and then by Java, which would never come to its fast code.
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
