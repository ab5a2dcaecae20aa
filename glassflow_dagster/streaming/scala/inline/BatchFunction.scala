package glassflow

import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}

/** What a `BatchQuery` calls for each batch; implemented in Python. */
trait BatchFunction {

  /** Run a batch, whose offsets and time are in the offset log; when it returns, the batch is committed. */
  def run(batch: Long): Unit
}

/** What a batch reads: Kafka's partitions, each with its offsets, and their reader. */
case class BatchRanges(partitions: Array[InputPartition], factory: PartitionReaderFactory)
