package glassflow

import java.util
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.types.{StructField, StructType, TimestampType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A stream source without records: it triggers batches while events wait and the topics are silent, and carries the
  * watermark of the event clock into Spark.
  *
  * Read it with `format("glassflow.ClockSource")` and the option `name`; `ClockSource.of(name)` is the clock to set.
  * Column: clock TIMESTAMP; a batch has one row when the clock has advanced, else none. The clock is part of the
  * offset, and so of the checkpoint: a replayed batch reads the same.
  */
class ClockSource extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = ClockSource.Schema

  override def getTable(schema: StructType, partitioning: Array[Transform], options: util.Map[String, String]): Table =
    new ClockTable(options.get("name"))
}

object ClockSource {
  private[glassflow] val Schema = StructType(Seq(StructField("clock", TimestampType)))
  private val clocks = new ConcurrentHashMap[String, StreamClock]

  /** The clock of a query in this process, by the option `name`. */
  def of(name: String): StreamClock = clocks.computeIfAbsent(name, _ => new StreamClock)
}

/** The settings of a query's clock source, which the driver changes between two batches. */
class StreamClock {

  /** The watermark of the event clock, milliseconds since 1970; 0 while there is none. It never goes back. */
  @volatile var clockMs: Long = 0

  /** A batch is triggered at the latest after so many milliseconds; 0: none is triggered by time. */
  @volatile var everyMs: Long = 0

  def moveTo(ms: Long): Unit = clockMs = math.max(clockMs, ms)

  def triggerEvery(ms: Long): Unit = everyMs = ms
}

private class ClockTable(clock: String) extends Table with SupportsRead {
  override def name: String = "clock"
  override def schema: StructType = ClockSource.Schema
  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(TableCapability.MICRO_BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => new ClockScan(clock)
}

private class ClockScan(clock: String) extends Scan {
  override def readSchema: StructType = ClockSource.Schema
  override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream = new ClockStream(ClockSource.of(clock))
}

/** The source's offset. batches: how many batches it has triggered; clockMs: the clock; moved: whether the clock has
  * advanced with this offset. Spark's watermark follows one batch later, so an advance triggers a second batch.
  */
private case class ClockOffset(batches: Long, clockMs: Long, moved: Boolean) extends Offset {
  override def json: String = s"""{"batches":$batches,"clockMs":$clockMs,"moved":$moved}"""
}

private object ClockOffset {
  // In checkpoints of version 0.2.0 the first number is called `ticks`.
  private val Form = """\{"(?:batches|ticks)":(\d+),"clockMs":(\d+),"moved":(true|false)\}""".r

  def fromJson(text: String): ClockOffset = text match {
    case Form(batches, clockMs, moved) => ClockOffset(batches.toLong, clockMs.toLong, moved.toBoolean)
    case _ => throw new IllegalArgumentException(
        s"'$text' is not a clock offset; restore the checkpoint from a copy"
      )
  }
}

private class ClockStream(clock: StreamClock) extends MicroBatchStream with SupportsTriggerAvailableNow {
  private var endsWhenAllIsRead = false
  // A query that ends when all is read gets one batch at its start, for events that wait since an earlier query.
  private var hasTriggered = false
  private var lastTrigger = System.nanoTime()

  override def initialOffset: Offset = ClockOffset(0, 0, moved = false)
  override def deserializeOffset(json: String): Offset = ClockOffset.fromJson(json)
  override def prepareForTriggerAvailableNow(): Unit = endsWhenAllIsRead = true
  override def latestOffset: Offset = throw new UnsupportedOperationException("called with a start offset only")

  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    val from = start.asInstanceOf[ClockOffset]
    val hasMoved = clock.clockMs > from.clockMs
    if (hasMoved || from.moved || isDue) {
      lastTrigger = System.nanoTime()
      hasTriggered = true
      ClockOffset(from.batches + 1, math.max(clock.clockMs, from.clockMs), hasMoved)
    } else from
  }

  /** Whether a batch is to be triggered by time. */
  private def isDue: Boolean = {
    val every = clock.everyMs
    every > 0 && (if (endsWhenAllIsRead) !hasTriggered else System.nanoTime() - lastTrigger >= every * 1000000)
  }

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = {
    val (from, until) = (start.asInstanceOf[ClockOffset], end.asInstanceOf[ClockOffset])
    if (until.clockMs > from.clockMs) Array(ClockPartition(until.clockMs)) else Array.empty
  }

  override def createReaderFactory(): PartitionReaderFactory = new ClockReaderFactory
  override def commit(end: Offset): Unit = ()
  override def stop(): Unit = ()
}

private case class ClockPartition(clockMs: Long) extends InputPartition

private class ClockReaderFactory extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new PartitionReader[InternalRow] {
      private var rest = 1
      override def next(): Boolean = { rest -= 1; rest >= 0 }
      override def get(): InternalRow = InternalRow(partition.asInstanceOf[ClockPartition].clockMs * 1000)
      override def close(): Unit = ()
    }
}
