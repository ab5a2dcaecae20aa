package org.apache.spark.sql.inline

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.LeafExpression
import org.apache.spark.sql.catalyst.expressions.codegen._
import org.apache.spark.sql.types.{DataType, TimestampType}

/** The time of the batch that a prepared plan runs on, in microseconds since 1970. */
class BatchTimeHolder extends Serializable {
  @volatile var micros: Long = 0
}

/** The time of the batch in a prepared plan; see Functions.BatchTime for that of a plan that is made for one batch. */
case class HeldTime(holder: BatchTimeHolder) extends LeafExpression {
  override def dataType: DataType = TimestampType
  override def nullable: Boolean = false
  override def foldable: Boolean = false
  override def eval(row: InternalRow): Any = holder.micros
  override protected def doGenCode(context: CodegenContext, code: ExprCode): ExprCode = {
    val reference = context.addReferenceObj("batchTime", holder)
    val micros = JavaCode.expression(s"$reference.micros()", TimestampType)
    code.copy(code = EmptyBlock, isNull = FalseLiteral, value = micros)
  }
}
