// In Spark's own package, as its classes for Arrow batches are private to it.
package org.apache.spark.sql.execution.python

import scala.jdk.CollectionConverters._

import org.apache.spark.{JobArtifactSet, TaskContext}
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, MapInArrow}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy, UnaryExecNode}
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch}

/** Plans `mapInArrow` with Arrow batches that are limited in bytes, too. Spark's own limit in bytes reads the size of
  * all columns after every row, which is half of all work with small rows; this one takes the size of Spark's row,
  * which is known.
  */
object SizedMapInArrowStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case MapInArrow(function: PythonUDF, output, child, false, None) =>
      Seq(SizedMapInArrowExec(function, output, planLater(child)))
    case _ => Nil
  }
}

/** Spark's MapInArrowExec, with another rule for the end of a batch. */
case class SizedMapInArrowExec(function: PythonUDF, output: Seq[Attribute], child: SparkPlan)
    extends UnaryExecNode with PythonSQLMetrics {
  override def producedAttributes: AttributeSet = AttributeSet(output)
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override protected def withNewChildInternal(newChild: SparkPlan): SizedMapInArrowExec = copy(child = newChild)

  override protected def doExecute(): RDD[InternalRow] = {
    val functions = Seq((ChainedPythonFunctions(Seq(function.func)), function.resultId.id))
    val input = StructType(Array(StructField("struct", child.schema)))
    val (timeZone, largeVarTypes) = (conf.sessionLocalTimeZone, conf.arrowUseLargeVarTypes)
    val settings = ArrowPythonRunner.getPythonRunnerConfMap(conf)
    val (evalType, metrics, columns) = (function.evalType, pythonMetrics, output)
    val artifacts = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)
    child.execute().mapPartitionsInternal { rows =>
      val runner = new ArrowPythonRunner(
        functions,
        evalType,
        Array(Array(0)),
        input,
        timeZone,
        largeVarTypes,
        settings,
        metrics,
        artifacts,
        None
      ) with BatchedPythonArrowInput
      val context = TaskContext.get()
      val batches = runner.compute(new SizedBatches(rows), context.partitionId(), context)
      val toUnsafe = UnsafeProjection.create(columns, columns)
      batches.flatMap(unwrapped(_, columns.length)).map(toUnsafe)
    }
  }

  /** The rows of a batch from Python, which come as one column of structs. */
  private def unwrapped(batch: ColumnarBatch, columns: Int): Iterator[InternalRow] = {
    val struct = batch.column(0).asInstanceOf[ArrowColumnVector]
    val flat = new ColumnarBatch(Array.tabulate(columns)(struct.getChild))
    flat.setNumRows(batch.numRows())
    flat.rowIterator.asScala
  }
}

/** Divides rows into runs, each of which becomes an Arrow batch: a run ends with the row that exceeds
  * `SizedBatches.BYTES`. Each row is wrapped as the only column of another row, as Spark's Python worker expects it.
  */
private class SizedBatches(rows: Iterator[InternalRow]) extends Iterator[Iterator[InternalRow]] {
  override def hasNext: Boolean = rows.hasNext

  override def next(): Iterator[InternalRow] = new Iterator[InternalRow] {
    private var bytes = 0L

    override def hasNext: Boolean = bytes < SizedBatches.BYTES && rows.hasNext

    override def next(): InternalRow = {
      val row = rows.next()
      row match {
        case unsafe: UnsafeRow => bytes += unsafe.getSizeInBytes
        // Spark's operators return UnsafeRows only; for others there is still the limit in rows.
        case _ =>
      }
      InternalRow(row)
    }
  }
}

private object SizedBatches {
  // Each task has one batch at a time, and a batch takes its size three times outside of Java's heap, where Spark may
  // use as much memory as inside: in Arrow's vectors, which double as they grow, in the message that is made of them,
  // and in the buffer that the message is sent from. A thousand rows (the limit in rows) of up to 1.5 kB each fit; with
  // larger rows, a larger batch would save nothing.
  val BYTES: Long = 4L * 1024 * 1024
}
