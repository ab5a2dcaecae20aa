package org.apache.spark.sql.inline

import java.util.{HashMap => JavaMap, UUID}

import scala.jdk.CollectionConverters._

import _root_.glassflow.{BatchFunction, BatchRanges}

import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.streaming.WriteToStream
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, _}
import org.apache.spark.sql.execution.streaming.{AvailableNowTrigger, Offset}
import org.apache.spark.sql.execution.streaming.checkpointing.{CommitMetadata, OffsetSeqMetadata}
import org.apache.spark.sql.execution.streaming.runtime._
import org.apache.spark.sql.streaming.{SinkProgress, SourceProgress, StateOperatorProgress, StreamingQueryProgress}
import org.apache.spark.sql.streaming.Trigger
import org.apache.spark.util.SystemClock

/** Spark's execution of a streaming query in micro-batches, with the same logs, but without a plan of its own: the
  * offsets of a batch are logged, `run` is called, the batch is committed. Spark itself would plan, optimize and
  * execute the query's plan for each batch, although only `stages` knows how to run it.
  *
  * The query has one source. A batch begins when the source's least number of records is there, or its delay since the
  * last batch has passed and there are records.
  */
class BatchLoop(
    session: SparkSession,
    trigger: Trigger,
    query: WriteToStream,
    stages: BatchQuery,
    run: BatchFunction
) extends MicroBatchExecution(session, trigger, new SystemClock, Map.empty, query) {
  private type Source = MicroBatchStream with SupportsAdmissionControl

  private lazy val source = sources.head.asInstanceOf[Source]
  private lazy val batch = getLatestExecutionContext().asInstanceOf[MicroBatchExecutionContext]
  private lazy val limits = BatchStart.of(uniqueSources(source))
  // The log may be purged in steps: reading its folder takes longer than the rest of the books of a small batch.
  private val purgedEvery = minLogEntriesToMaintain / 2 + 1

  // Milliseconds since 1970.
  private var lastBegun = 0L
  // Whether the topics had more records than the last batch took.
  private var isBehind = true
  @volatile private var done: Option[DoneBatch] = None

  override protected def runActivatedStream(stream: SparkSession): Unit = {
    populateStartOffsets(batch, stream)
    stages.begin(stream, id, runId)
    // A batch that an earlier run has begun.
    if (batch.isCurrentBatchConstructed) finish(new Phases)
    while (isActive) {
      if (!isBehind) limits.pause(lastBegun, pollingDelayMs)
      val hasRun = runNext()
      if (!hasRun && trigger == AvailableNowTrigger) state.set(TERMINATED)
    }
  }

  /** Run a batch if there are records for one; return whether one has run. */
  private def runNext(): Boolean = {
    val phases = new Phases
    val start = startOffset
    val limit = if (trigger == AvailableNowTrigger) uniqueSources(source) else limits.readLimit(lastBegun)
    val end = phases.measure("latestOffset")(source.latestOffset(start, limit))
    val latest = source.reportLatestOffset()
    isBehind = end != null && end != start && latest != end
    if (end == null || end == start) return false
    lastBegun = triggerClock.getTimeMillis()
    batch.endOffsets ++= Map(source -> end)
    batch.latestOffsets ++= Map(source -> latest)
    batch.offsetSeqMetadata = OffsetSeqMetadata(0, lastBegun, batch.offsetSeqMetadata.conf)
    phases.measure("walCommit") {
      markMicroBatchStart(batch)
      if (batch.batchId % purgedEvery == 0) purgeAsync(batch.batchId)
    }
    finish(phases)
    true
  }

  /** Run the batch that the log has, and commit it. */
  private def finish(phases: Phases): Unit = {
    val (start, end) = (startOffset, source.deserializeOffset(batch.endOffsets(source).json))
    stages.ranges = BatchRanges(source.planInputPartitions(start, end), source.createReaderFactory())
    // Python's calls come back in this thread, so its jobs have these properties.
    stages.properties(batch.batchId).foreach { case (name, value) =>
      session.sparkContext.setLocalProperty(name, value)
    }
    phases.measure("addBatch")(run.run(batch.batchId))
    phases.measure("commitOffsets") {
      if (!commitLog.add(batch.batchId, CommitMetadata()))
        throw new IllegalStateException(s"batch ${batch.batchId} was committed by another query")
    }
    committedOffsets ++= batch.endOffsets
    val latest = batch.latestOffsets.get(source).getOrElse(end)
    done = Some(DoneBatch(batch.batchId, phases, start.json, end.json, latest.json))
    batch.startOffsets = batch.endOffsets
    batch.batchId += 1
    batch.isCurrentBatchConstructed = false
  }

  private def startOffset: AnyOffset =
    batch.startOffsets.get(source).map(offset => source.deserializeOffset(offset.json)).getOrElse(
      source.initialOffset()
    )

  /** The progress of the last batch. Made when it is asked for. */
  override def lastProgress: StreamingQueryProgress = done.map { last =>
    val read = new SourceProgress("kafka", last.start, last.end, last.latest, 0, 0, 0, new JavaMap[String, String])
    new StreamingQueryProgress(
      id,
      runId,
      name,
      progressReporter.formatTimestamp(last.phases.begun),
      last.id,
      last.phases.total,
      last.phases.asJava,
      new JavaMap[String, String],
      Array.empty[StateOperatorProgress],
      Array(read),
      new SinkProgress("inline"),
      new JavaMap[String, Row]
    )
  }.orNull

  override def cleanup(): Unit = {
    super.cleanup()
    stages.end()
  }
}

/** A batch that was committed: its offsets as JSON, where the topics ended when it began, and what took how long. */
private case class DoneBatch(id: Long, phases: Phases, start: String, end: String, latest: String)

/** How long the phases of one batch take, by Spark's names of them. */
private class Phases {
  val begun: Long = System.currentTimeMillis()
  private val milliseconds = scala.collection.mutable.LinkedHashMap.empty[String, Long]

  def measure[T](phase: String)(work: => T): T = {
    val start = System.nanoTime()
    val result = work
    milliseconds(phase) = (System.nanoTime() - start) / 1000000
    result
  }

  def total: Long = milliseconds.values.sum

  def asJava: java.util.Map[String, java.lang.Long] = {
    val all = milliseconds.toMap + ("triggerExecution" -> total)
    new JavaMap(all.map { case (phase, ms) => phase -> Long.box(ms) }.asJava)
  }
}

/** When a batch begins: with `least` records, or when `delayMs` have passed since the last one began and there are any.
  */
private case class BatchStart(least: Long, delayMs: Long, most: ReadLimit) {

  /** What the source may return now. lastBegun: of the last batch, milliseconds since 1970. */
  def readLimit(lastBegun: Long): ReadLimit =
    if (waiting(lastBegun) <= 0) most
    else ReadLimit.compositeLimit(Array(ReadLimit.minRows(least, Long.MaxValue), most))

  /** Wait until the source is worth asking again: at the end of the delay, or after `pollingMs` where that is long. */
  def pause(lastBegun: Long, pollingMs: Long): Unit = {
    val left = waiting(lastBegun)
    Thread.sleep(if (left <= 0 || left > 2 * pollingMs) pollingMs else left)
  }

  private def waiting(lastBegun: Long): Long = lastBegun + delayMs - System.currentTimeMillis()
}

private object BatchStart {

  /** From the limits of a source. */
  def of(limit: ReadLimit): BatchStart = limit match {
    case all: CompositeReadLimit =>
      val most = all.getReadLimits.collectFirst { case most: ReadMaxRows => most }.getOrElse(ReadLimit.allAvailable())
      all.getReadLimits.collectFirst { case least: ReadMinRows => least }
        .map(least => BatchStart(least.minRows, least.maxTriggerDelayMs, most)).getOrElse(BatchStart(0, 0, most))
    case most => BatchStart(0, 0, most)
  }
}
