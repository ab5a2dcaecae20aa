package glassflow

import java.util.{EnumSet, Map => JavaMap, Optional, Set => JavaSet}
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.kafka010.{KafkaRows, KafkaRowsFactory}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Spark's own Kafka source, with two differences. Its rows are `KafkaRows`. The records of a micro-batch have a limit
  * that can change while the query runs (`BatchBound`): maxOffsetsPerTrigger is fixed when the query starts. Its
  * options are those of Spark's source, and `BoundedKafka.BOUND`. Its checkpoint is the same as that of Spark's source.
  */
class BoundedKafka extends TableProvider {
  private lazy val kafka = {
    val found = Class.forName(BoundedKafka.SPARKS, true, Thread.currentThread.getContextClassLoader)
    found.getDeclaredConstructor().newInstance().asInstanceOf[TableProvider]
  }

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = KafkaRows.Schema

  override def getTable(schema: StructType, partitioning: Array[Transform], options: JavaMap[String, String]): Table =
    new BoundedTable(kafka.getTable(schema, partitioning, options).asInstanceOf[Table with SupportsRead])
}

object BoundedKafka {

  /** The option with the name of the query, by which `BatchBound` has its limit. */
  val BOUND = "glassflow.bound"
  private val SPARKS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
}

/** The most records that the next micro-batch of a query may take, by the query's name; where none is set, only the
  * limits of the query's options apply.
  */
object BatchBound {
  private val allowed = new ConcurrentHashMap[String, Long]

  /** Called from Python. */
  def set(query: String, records: Long): Unit = allowed.put(query, records)

  def of(query: String): Long = allowed.getOrDefault(query, Long.MaxValue)
}

private class BoundedTable(table: Table with SupportsRead) extends Table with SupportsRead {
  override def name: String = table.name
  override def columns: Array[Column] = KafkaRows.columns
  override def capabilities: JavaSet[TableCapability] =
    EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    val builder = table.newScanBuilder(options)
    () => new BoundedScan(builder.build(), options.get(BoundedKafka.BOUND))
  }
}

private class BoundedScan(scan: Scan, query: String) extends Scan {
  override def readSchema: StructType = KafkaRows.Schema
  override def description: String = scan.description
  override def toBatch: Batch = new KafkaRowsBatch(scan.toBatch)
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream =
    new BoundedStream(scan.toMicroBatchStream(checkpoint).asInstanceOf[BoundedStream.Sparks], query)
}

private class KafkaRowsBatch(batch: Batch) extends Batch {
  override def planInputPartitions(): Array[InputPartition] = batch.planInputPartitions()
  override def createReaderFactory(): PartitionReaderFactory = KafkaRowsFactory
}

private object BoundedStream {
  type Sparks = MicroBatchStream with SupportsTriggerAvailableNow with ReportsSourceMetrics
}

private class BoundedStream(stream: BoundedStream.Sparks, query: String)
    extends MicroBatchStream with SupportsTriggerAvailableNow with ReportsSourceMetrics {
  override def latestOffset(start: Offset, limit: ReadLimit): Offset =
    stream.latestOffset(start, bounded(limit, BatchBound.of(query)))

  /** A read limit with at most so many records. Spark reads a query's limit once, so this is applied at each use. */
  private def bounded(limit: ReadLimit, records: Long): ReadLimit = limit match {
    case all: CompositeReadLimit => ReadLimit.compositeLimit(all.getReadLimits.map(bounded(_, records)))
    case most: ReadMaxRows => ReadLimit.maxRows(math.min(most.maxRows, records))
    // The least number of records to wait for must not exceed what the batch may take.
    case least: ReadMinRows => ReadLimit.minRows(math.min(least.minRows, records), least.maxTriggerDelayMs)
    case other => other
  }

  override def getDefaultReadLimit: ReadLimit = stream.getDefaultReadLimit
  override def prepareForTriggerAvailableNow(): Unit = stream.prepareForTriggerAvailableNow()
  override def reportLatestOffset(): Offset = stream.reportLatestOffset()
  override def latestOffset(): Offset = stream.latestOffset()
  override def initialOffset(): Offset = stream.initialOffset()
  override def deserializeOffset(json: String): Offset = stream.deserializeOffset(json)
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    stream.planInputPartitions(start, end)
  override def createReaderFactory(): PartitionReaderFactory = KafkaRowsFactory
  override def metrics(latest: Optional[Offset]): JavaMap[String, String] = stream.metrics(latest)
  override def commit(end: Offset): Unit = stream.commit(end)
  override def stop(): Unit = stream.stop()
  override def toString: String = stream.toString
}
