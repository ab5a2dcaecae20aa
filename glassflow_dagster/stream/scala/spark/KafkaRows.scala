// In the package of Spark's Kafka source, as its consumers and partitions are private to it.
package org.apache.spark.sql.kafka010

import org.apache.kafka.clients.consumer.ConsumerRecord

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.connector.catalog.{CatalogV2Util, Column}
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Makes rows of Kafka's records. The timestamp is a LONG, in milliseconds, as Kafka has it: Spark's own rows have a
  * TIMESTAMP, in microseconds, which a timestamp that a producer has set in nanoseconds overflows.
  */
class KafkaRows extends (ConsumerRecord[Array[Byte], Array[Byte]] => UnsafeRow) {
  private val toUnsafe = UnsafeProjection.create(KafkaRows.Schema)

  /** Return a record's row, which the next one overwrites. */
  override def apply(record: ConsumerRecord[Array[Byte], Array[Byte]]): UnsafeRow = toUnsafe(
    new GenericInternalRow(
      Array[Any](
        record.key,
        record.value,
        UTF8String.fromString(record.topic),
        record.partition,
        record.offset,
        record.timestamp,
        KafkaRows.headers(record)
      )
    )
  )
}

object KafkaRows {

  /** The columns of Spark's Kafka source with headers, but for the timestamp and its type. */
  val Schema: StructType = StructType(
    Seq(
      StructField("key", BinaryType),
      StructField("value", BinaryType),
      StructField("topic", StringType),
      StructField("partition", IntegerType),
      StructField("offset", LongType),
      StructField("timestamp", LongType),
      StructField("headers", KafkaRecordToRowConverter.headersType)
    )
  )

  def columns: Array[Column] = CatalogV2Util.structTypeToV2Columns(Schema)

  private def headers(record: ConsumerRecord[Array[Byte], Array[Byte]]): GenericArrayData = {
    val headers = record.headers.toArray
    if (headers.isEmpty) null
    else
      new GenericArrayData(
        headers.map(header => new GenericInternalRow(Array[Any](UTF8String.fromString(header.key), header.value)))
      )
  }
}

/** Reads the partitions that Spark's Kafka source has planned, as `KafkaRows`. */
object KafkaRowsFactory extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new KafkaRowsReader(partition.asInstanceOf[KafkaBatchInputPartition])
}

/** Reads one range of a partition's offsets, as Spark's `KafkaBatchPartitionReader` does. */
private class KafkaRowsReader(partition: KafkaBatchInputPartition) extends PartitionReader[InternalRow] {
  private val range = partition.offsetRange
  private val consumer = KafkaDataConsumer.acquire(range.topicPartition, partition.executorKafkaParams)
  private val toRow = new KafkaRows
  private var offset = range.fromOffset
  private var row: UnsafeRow = _

  override def next(): Boolean = offset < range.untilOffset && {
    val record = consumer.get(offset, range.untilOffset, partition.pollTimeoutMs, partition.failOnDataLoss)
    // None where the last offsets of the range have no record.
    val isRecord = record != null
    if (isRecord) {
      row = toRow(record)
      offset = record.offset + 1
    }
    isRecord
  }

  override def get(): InternalRow = row
  override def close(): Unit = consumer.release()
}
