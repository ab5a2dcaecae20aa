package org.apache.spark.sql.inline

import java.nio.file.{Files, Path}
import java.util.UUID

import scala.collection.mutable

import _root_.glassflow.{BatchFunction, Functions, SharedSessions}

import org.apache.spark.sql.{DataFrame, Dataset => AnyDataset, Row}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{CurrentBatchTimestamp, CurrentTimestamp}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.{StreamingRelationV2, WriteToStream, WriteToStreamStatement}
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.datasources.v2.DataSourceRDD
import org.apache.spark.sql.execution.streaming.Sink
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime._
import org.apache.spark.sql.execution.streaming.state.StateSchemaBroadcast
import org.apache.spark.sql.streaming.{OutputMode, StreamingQuery, Trigger}

/** A streaming query that decides for each micro-batch how to run its stages. A batch of many records is a job (`job`);
  * one of few records runs inline (`inline`), in the query's own thread, by a plan that was prepared once. Both use the
  * same state.
  *
  * The query has no watermark: the stages must not use it.
  *
  * records: the source, a stream. events: the stages on it. name: the query's. checkpoint: its root, a path or a URL.
  * mostInline, mostInlineBytes: the most records of an inline batch, and their bytes.
  */
class BatchQuery(
    records: AnyDataset[Row],
    events: AnyDataset[Row],
    name: String,
    checkpoint: String,
    val mostInline: Int,
    val mostInlineBytes: Int
) {
  private val analyzed: LogicalPlan = events.asInstanceOf[Dataset[Row]].queryExecution.analyzed
  private val schemas = mutable.Map.empty[Long, StateSchemaBroadcast]
  private var isFirst = true
  // None before the first inline batch; then the plan, or None where there is none.
  private var prepared: Option[Option[InlinePlan]] = None
  // Of the batch that ran last, as a job or inline.
  @volatile private var bytesOfState: () => Long = () => 0

  // Set when the query begins: its session, which Spark copies from that of `events`, and its ids.
  private var session: SparkSession = _
  private var (id, run): (UUID, UUID) = (null, null)

  /** What the current batch reads. */
  private[inline] var current: BatchRecords = _

  /** Start the query; it calls `function` for each batch. untilCaughtUp: end with the records that there are now. */
  def start(function: BatchFunction, untilCaughtUp: Boolean): StreamingQuery = {
    val owner = records.sparkSession.asInstanceOf[SparkSession]
    val trigger = if (untilCaughtUp) Trigger.AvailableNow() else Trigger.ProcessingTime(0)
    val statement = WriteToStreamStatement(
      Some(name),
      None,
      Some(checkpoint),
      useTempCheckpointLocation = false,
      recoverFromCheckpointLocation = true,
      NoSink,
      OutputMode.Append(),
      owner.sessionState.newHadoopConf(),
      trigger,
      records.asInstanceOf[Dataset[Row]].queryExecution.analyzed
    )
    val resolved = owner.sessionState.executePlan(statement).analyzed.asInstanceOf[WriteToStream]
    val loop = new BatchLoop(owner, trigger, resolved, this, function)
    val query = new StreamingQueryWrapper(loop)
    SharedSessions.starting(owner, query)
    loop.start()
    query
  }

  private[inline] def begin(stream: SparkSession, query: UUID, queryRun: UUID): Unit = {
    session = stream
    id = query
    run = queryRun
  }

  /** The local properties of the jobs of a batch: Spark's stateful operators need them. */
  private[inline] def properties(batch: Long): Map[String, String] = BatchQuery.properties(id, batch)

  private[inline] def end(): Unit = prepared.flatten.foreach(_.close())

  /** The stages on the records of the current batch, to be run as a job. timeMs: the time of the batch. */
  def job(batch: Long, timeMs: Long): AnyDataset[Row] = {
    def read(relation: StreamingRelationV2): LogicalPlan = {
      val partitions = current.partitions.map(Option(_)).toSeq
      val rdd = new DataSourceRDD(session.sparkContext, partitions, current.factory, false, Map.empty)
      LogicalRDD(relation.output, rdd, isStreaming = true)(session)
    }
    val plan = analyzed.transform { case relation: StreamingRelationV2 => read(relation) }
      .transformAllExpressions { case now: CurrentTimestamp =>
        CurrentBatchTimestamp(timeMs, now.dataType, Some("UTC"))
      }
    val execution = executionOf(plan, batch, timeMs)
    val stages = new Dataset[Row](execution, ExpressionEncoder(execution.analyzed.schema))
    bytesOfState = () => BatchQuery.stateBytes(execution)
    // As Spark's own foreachBatch does: what is applied to a DataFrame makes a new plan, which would lack the state.
    Dataset.ofRows(session, LogicalRDD.fromDataset(execution.toRdd, stages, isStreaming = false))
  }

  /** Run the stages on the records of the current batch inline, and write the rows to a file, as an Arrow stream in the
    * order of their records (topic_rank, partition, offset and item, the offset first). Return false where only a job
    * can run them: they have a plan without a place inline, or the records are too large.
    *
    * A file, as py4j would send the bytes as text, and in pieces for which the receiver's kernel waits 40 ms each.
    */
  def inline(batch: Long, timeMs: Long, file: String): Boolean = {
    if (prepared.isEmpty) prepared = Some(prepare(batch, timeMs))
    val rows = prepared.flatten.flatMap { plan =>
      bytesOfState = () => plan.stateBytes
      plan.run(current, batch, timeMs, properties(batch))
    }
    rows.foreach(Files.write(Path.of(file), _))
    rows.isDefined
  }

  /** Memory and files of the state in bytes, after the last batch. */
  def stateBytes: Long = bytesOfState()

  private def executionOf(plan: LogicalPlan, batch: Long, timeMs: Long): IncrementalExecution = {
    val execution = new IncrementalExecution(
      session,
      plan,
      OutputMode.Append(),
      s"$checkpoint/state",
      id,
      run,
      batch,
      None,
      OffsetSeqMetadata(0, timeMs, session.conf),
      WatermarkPropagator.noop(),
      isFirst,
      stateSchemaMetadatas = schemas
    )
    execution.executedPlan
    isFirst = false
    execution
  }

  private def prepare(batch: Long, timeMs: Long): Option[InlinePlan] = {
    val clock = new BatchTimeHolder
    def held(relation: StreamingRelationV2): LogicalPlan =
      LogicalRDD(relation.output, session.sparkContext.emptyRDD[InternalRow], isStreaming = true)(session)
    val plan = analyzed.transform { case relation: StreamingRelationV2 => held(relation) }
      .transformAllExpressions { case _: Functions.BatchTime => HeldTime(clock) }
    val execution = executionOf(plan, batch, timeMs)
    InlineOrJob.plan(execution.executedPlan, session, clock)
  }
}

/** The sink of a `BatchQuery`, which Spark wants to know; its batches are written by `BatchFunction`. */
private object NoSink extends Sink {
  override def addBatch(id: Long, batch: DataFrame): Unit = throw new UnsupportedOperationException
}

private object BatchQuery {

  /** The local properties of the jobs of a batch. */
  def properties(query: UUID, batch: Long): Map[String, String] = Map(
    StreamExecution.QUERY_ID_KEY -> query.toString,
    MicroBatchExecution.BATCH_ID_KEY -> batch.toString,
    StreamExecution.IS_CONTINUOUS_PROCESSING -> "false"
  )

  /** Memory and files of the state stores that a job has used, in bytes. */
  def stateBytes(execution: IncrementalExecution): Long = execution.executedPlan.collect {
    case stateful: StateStoreWriter =>
      val progress = stateful.getProgress()
      progress.memoryUsedBytes + progress.customMetrics.getOrDefault("rocksdbSstFileSize", 0L)
  }.sum
}
