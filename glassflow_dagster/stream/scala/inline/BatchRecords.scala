package org.apache.spark.sql.inline

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset}

/** What a batch reads, from the offset `start` to `end`. */
class BatchRecords(source: MicroBatchStream, val start: Offset, val end: Offset) {

  /** The records, for a job. */
  lazy val partitions: Array[InputPartition] = source.planInputPartitions(start, end)
  lazy val factory: PartitionReaderFactory = source.createReaderFactory()

  /** The records, one of Kafka's partitions after the other, read in this thread. */
  def rows: Iterator[InternalRow] = partitions.iterator.flatMap(read)

  private def read(partition: InputPartition): Iterator[InternalRow] = {
    val reader = factory.createReader(partition)
    new Iterator[InternalRow] {
      private var isAhead, isAtEnd = false
      override def hasNext: Boolean = {
        if (!isAhead && !isAtEnd) {
          isAhead = reader.next()
          isAtEnd = !isAhead
          if (isAtEnd) reader.close()
        }
        isAhead
      }
      override def next(): InternalRow = {
        if (!hasNext) throw new NoSuchElementException
        isAhead = false
        reader.get()
      }
    }
  }
}

/** What a batch reads, where the rows are here already. */
class HeldRecords(source: MicroBatchStream, start: Offset, end: Offset, held: Iterator[InternalRow])
    extends BatchRecords(source, start, end) {
  override def rows: Iterator[InternalRow] = held
}
