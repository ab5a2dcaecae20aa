package org.apache.spark.sql.inline

import java.util.{HashMap => JavaMap}

import scala.jdk.CollectionConverters._

import _root_.glassflow.BatchFunction

import org.apache.kafka.clients.consumer.OffsetOutOfRangeException

import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.streaming.{StreamingRelationV2, WriteToStream}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.execution.streaming.AvailableNowTrigger
import org.apache.spark.sql.execution.streaming.checkpointing.{CommitMetadata, OffsetSeqMetadata}
import org.apache.spark.sql.execution.streaming.runtime._
import org.apache.spark.sql.streaming.{SinkProgress, SourceProgress, StateOperatorProgress, StreamingQueryProgress}
import org.apache.spark.sql.kafka010.{KafkaOffsets, KafkaTail}
import org.apache.spark.sql.streaming.Trigger
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.SystemClock

/** Spark's execution of a streaming query in micro-batches, with the same logs, but without a plan of its own: the
  * offsets of a batch are logged, `run` is called, the batch is committed. Spark itself would plan, optimize and
  * execute the query's plan for each batch, although only `stages` knows how to run it.
  *
  * The query has one source, Kafka. A batch begins with the least number of records that the source's options say, or
  * when their delay has passed since the last batch began and there are records.
  *
  * While the batches are small, their records come from a consumer that waits for them (KafkaTail). Spark's own source
  * is asked once a second then: it finds new partitions and lost records.
  */
class BatchLoop(
    session: SparkSession,
    trigger: Trigger,
    query: WriteToStream,
    stages: BatchQuery,
    run: BatchFunction
) extends MicroBatchExecution(session, trigger, new SystemClock, Map.empty, query) {
  import BatchLoop._

  private lazy val source = sources.head.asInstanceOf[Source]
  private lazy val batch = getLatestExecutionContext().asInstanceOf[MicroBatchExecutionContext]
  private lazy val limits = BatchStart.of(uniqueSources(source))
  private lazy val tail = new KafkaTail(optionsOf(query), stages.mostInline, stages.mostInlineBytes)
  private var hasTail = false
  // The logs are purged in steps: listing their folders takes longer than logging a small batch.
  private val purgedEvery = minLogEntriesToMaintain / 2 + 1

  // When the last batch began, and when Spark's source was last asked (`steadyMs`).
  private var (lastBegun, lastAsked) = (LONG_AGO, LONG_AGO)
  // Whether there were more records than the last batch took, or as many as only a job takes.
  private var isBehind = true
  // Whether no batch yet has taken all records that there were: those of a start have waited long enough.
  private var isStarting = true
  @volatile private var done: Option[DoneBatch] = None

  override protected def runActivatedStream(stream: SparkSession): Unit = {
    populateStartOffsets(batch, stream)
    stages.begin(stream, id, runId)
    // A batch that an earlier run has begun.
    if (batch.isCurrentBatchConstructed) {
      val end = source.deserializeOffset(batch.endOffsets(source).json)
      finish(new Phases, new BatchRecords(source, startOffset, end))
    }
    if (trigger == AvailableNowTrigger) {
      while (isActive && runFromSource(uniqueSources(source))) {}
      state.set(TERMINATED)
    } else {
      while (isActive) {
        if (!isBehind && steadyMs < lastAsked + ASKED_EVERY_MS) runFromTail()
        else if (!runFromSource(limits.readLimit(delayLeft)) && isBehind) pause()
      }
    }
  }

  /** Run a batch if Spark's source has records for one, within a limit; return whether one has run. */
  private def runFromSource(limit: ReadLimit): Boolean = {
    val phases = new Phases
    val start = startOffset
    val end = Option(phases.measure("latestOffset")(source.latestOffset(start, limit))).getOrElse(start)
    val latest = Option(source.reportLatestOffset()).getOrElse(end)
    lastAsked = steadyMs
    isBehind = recordsBetween(end, latest) > 0 && end != start || recordsBetween(start, latest) > stages.mostInline
    if (end != start) runBatch(phases, latest, new BatchRecords(source, start, end))
    isStarting &&= recordsBetween(end, latest) > 0
    if (isStarting) lastBegun = LONG_AGO
    end != start
  }

  /** Run a batch of the records that arrive, when it is due. Returns without one when there are too many records for an
    * inline batch, or when the source is to be asked.
    */
  private def runFromTail(): Unit = {
    hasTail = true
    val start = startOffset
    try {
      tail.goTo(start)
      while (isActive && tail.size == 0 && steadyMs < lastAsked + ASKED_EVERY_MS) tail.await(POLLED_EVERY_MS)
      if (tail.size > 0) tail.drain()
      while (isActive && tail.size > 0 && !tail.isFull && !isDue) {
        pause()
        tail.drain()
      }
    } catch {
      // Records are lost, or the topic was recreated: Spark's source says which.
      case _: OffsetOutOfRangeException =>
        isBehind = true
        Thread.sleep(POLLED_EVERY_MS)
    }
    if (tail.isFull) isBehind = true
    if (isActive && tail.size > 0 && isDue) {
      val end = tail.end
      runBatch(new Phases, end, new HeldRecords(source, start, end, tail.take()))
    }
  }

  /** Whether a batch of the waiting records is to begin now. */
  private def isDue: Boolean = tail.size >= limits.least || delayLeft <= 0

  private def delayLeft: Long = lastBegun + limits.delayMs - steadyMs

  private def pause(): Unit = Thread.sleep(math.max(1, math.min(delayLeft, POLLED_EVERY_MS)))

  private def runBatch(phases: Phases, latest: Offset, records: BatchRecords): Unit = {
    lastBegun = steadyMs
    batch.endOffsets ++= Map(source -> records.end)
    batch.latestOffsets ++= Map(source -> latest)
    batch.offsetSeqMetadata = OffsetSeqMetadata(0, triggerClock.getTimeMillis(), batch.offsetSeqMetadata.conf)
    phases.measure("walCommit") {
      markMicroBatchStart(batch)
      if (batch.batchId % purgedEvery == 0) purgeAsync(batch.batchId)
    }
    finish(phases, records)
  }

  /** Run the batch that the log has, and commit it. */
  private def finish(phases: Phases, records: BatchRecords): Unit = {
    stages.current = records
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
    val latest = batch.latestOffsets.get(source).getOrElse(records.end)
    done = Some(DoneBatch(batch.batchId, phases, records.start.json, records.end.json, latest.json))
    batch.startOffsets = batch.endOffsets
    batch.batchId += 1
    batch.isCurrentBatchConstructed = false
  }

  // Not the time of day, which may be set back.
  private def steadyMs: Long = System.nanoTime() / 1000000

  private def startOffset: Offset =
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
    if (hasTail) tail.close()
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

  /** What the source may return, `delayLeft` milliseconds before the delay has passed. */
  def readLimit(delayLeft: Long): ReadLimit =
    if (delayLeft <= 0) most else ReadLimit.compositeLimit(Array(ReadLimit.minRows(least, Long.MaxValue), most))
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

private object BatchLoop {
  private type Source = MicroBatchStream with SupportsAdmissionControl

  private val ASKED_EVERY_MS = 1000L
  private val LONG_AGO = Long.MinValue / 2
  // While a batch waits for its delay, and while there are no records: a query that is stopped ends within this time.
  private val POLLED_EVERY_MS = 100L

  private def optionsOf(query: WriteToStream): CaseInsensitiveStringMap =
    query.inputQuery.collectFirst { case relation: StreamingRelationV2 => relation.extraOptions }
      .getOrElse(throw new IllegalStateException("the query does not read a stream"))

  private def recordsBetween(start: Offset, end: Offset): Long = {
    val begun = KafkaOffsets.of(start)
    KafkaOffsets.of(end).map { case (partition, until) => until - begun.getOrElse(partition, 0L) }.sum
  }
}
