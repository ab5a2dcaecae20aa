package org.apache.spark.sql.inline

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution._

/** A part of a physical plan without an exchange or a state, made ready once and run for many batches: Spark plans it
  * and generates its code with the first one only.
  *
  * input: the leaf of the plan, whose rows are those that `rows` is given.
  */
class PreparedStage private (input: HeldRows, compiled: RDD[InternalRow]) {

  /** The result of the plan for some input rows, in the calling thread, which must run an `InlineTask`. As with all of
    * Spark's operators, a row may be overwritten by the next one.
    */
  def rows(of: Iterator[InternalRow]): Iterator[InternalRow] = {
    input.holder.rows = of
    compiled.iterator(compiled.partitions.head, TaskContext.get())
  }
}

object PreparedStage {

  /** Prepare a plan whose only leaf is a `HeldRows`. */
  def of(plan: SparkPlan): PreparedStage = {
    val compiled = CollapseCodegenStages()(plan)
    val input = compiled.collectFirst { case held: HeldRows => held }
    new PreparedStage(
      input.getOrElse(throw new IllegalStateException("the plan does not read held rows")),
      compiled.execute()
    )
  }

  /** The plan without the nodes by which Spark marks what it compiles as one method; `of` inserts them again. */
  def withoutCodegen(plan: SparkPlan): SparkPlan = plan.transformUp {
    case WholeStageCodegenExec(child) => child
    case InputAdapter(child) => child
  }
}

/** The leaf of a prepared plan: its rows are set for each run. */
case class HeldRows(output: Seq[Attribute])(val holder: RowHolder = new RowHolder) extends LeafExecNode {
  override protected def otherCopyArgs: Seq[AnyRef] = holder :: Nil
  override protected def doExecute(): RDD[InternalRow] = new HeldRdd(sparkContext, holder)
}

class RowHolder {
  var rows: Iterator[InternalRow] = Iterator.empty
}

private class HeldRdd(context: SparkContext, @transient holder: RowHolder) extends RDD[InternalRow](context, Nil) {
  override protected def getPartitions: Array[Partition] = Array(OnlyPartition)
  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = holder.rows
}

private object OnlyPartition extends Partition {
  override def index: Int = 0
}
