// In the package of Spark's Kafka source, as its offsets are private to it.
package org.apache.spark.sql.kafka010

import java.time.Duration
import java.util.{HashMap => JavaMap, Locale, Map => Params}

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.consumer.{ConsumerConfig, ConsumerRecord, KafkaConsumer}
import org.apache.kafka.common.TopicPartition

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.streaming.Offset
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.UninterruptibleThread

/** The newest records of topics, as they arrive: one consumer that waits at their ends, where Spark's source asks for
  * the end offsets first, and then has consumers fetch what is before them. It knows the partitions that it is told.
  *
  * options: those of Spark's source. mostRecords, mostBytes: of an inline batch. To be used by one thread.
  */
class KafkaTail(options: CaseInsensitiveStringMap, mostRecords: Int, mostBytes: Int) {
  private val consumer =
    new KafkaConsumer[Array[Byte], Array[Byte]](KafkaTail.settings(options, math.max(1, mostRecords)))
  private val toRow = new KafkaRows
  private val waiting = new ArrayBuffer[ConsumerRecord[Array[Byte], Array[Byte]]]
  private var bytes = 0L
  // Where the next record is read; the waiting ones are before it.
  private var next = Map.empty[TopicPartition, Long]

  /** Go on at an offset, without records. Does nothing where the tail is there already. */
  def goTo(offset: Offset): Unit = {
    val wanted = KafkaOffsets.of(offset)
    if (waiting.nonEmpty || wanted != next) {
      if (wanted.keySet != next.keySet) consumer.assign(wanted.keySet.asJava)
      for ((partition, at) <- wanted if !next.get(partition).contains(at)) consumer.seek(partition, at)
      next = wanted
      clear()
    }
  }

  def size: Int = waiting.size

  /** Whether more records would be too many for an inline batch. */
  def isFull: Boolean = size >= mostRecords || bytes >= mostBytes

  /** Wait until there are records, for `ms` at most. */
  def await(ms: Long): Unit = poll(ms)

  /** Take all records that the topics have now; others may come meanwhile. */
  def drain(): Unit = {
    // A consumer asks for the next records at once, so the first answer is an old one: it has the first records that
    // came since. The second is to a question of now, and says where the partitions end.
    poll(0)
    poll(KafkaTail.ANSWER_MS)
    val ends = next.map { case (partition, at) => partition -> (at + consumer.currentLag(partition).orElse(0)) }
    while (!isFull && next.exists { case (partition, at) => at < ends(partition) }) poll(KafkaTail.ANSWER_MS)
  }

  /** The offset after the waiting records. */
  def end: Offset = KafkaSourceOffset(next)

  /** Take the waiting records out, as `KafkaRows`. A row is overwritten by the next one. */
  def take(): Iterator[InternalRow] = {
    val taken = waiting.toArray
    clear()
    taken.iterator.map(toRow)
  }

  def close(): Unit = consumer.close(Duration.ZERO)

  private def clear(): Unit = {
    waiting.clear()
    bytes = 0
  }

  private def poll(ms: Long): Unit = {
    // An interrupted consumer may never return (KAFKA-1894).
    val polled = KafkaTail.uninterruptibly(consumer.poll(Duration.ofMillis(ms)))
    polled.forEach { record =>
      waiting += record
      bytes += math.max(0, record.serializedKeySize) + math.max(0, record.serializedValueSize)
    }
    // Also without a record: with transactions, a consumer passes markers and records of those that were aborted.
    next = next.map { case (partition, _) => partition -> consumer.position(partition) }
  }
}

object KafkaTail {
  // Of the options that Spark's source passes on to Kafka's clients.
  private val PREFIX = "kafka."

  private val FETCH_WAIT_MS = 200

  // A broker answers within a few milliseconds where it has records. Where it has none, this is waited in vain.
  private val ANSWER_MS = 5L

  private def settings(options: CaseInsensitiveStringMap, mostRecords: Int): Params[String, Object] = {
    val ofConsumer = options.asCaseSensitiveMap.asScala.collect {
      case (name, value) if name.toLowerCase(Locale.ROOT).startsWith(PREFIX) => name.drop(PREFIX.length) -> value
    }
    val settings = new JavaMap(KafkaSourceProvider.kafkaParamsForExecutors(ofConsumer.toMap, "glassflow-tail"))
    // A consumer does not ask for a partition of which it holds records, but for the others. While it holds some, its
    // one
    // request to a broker may be for silent partitions only, and is then answered when this wait is over. So one poll
    // takes all records, unless they are so large that the number of a poll was lowered; and the wait is short.
    if (
      ofConsumer.get(ConsumerConfig.MAX_POLL_RECORDS_CONFIG).forall(_.toInt >= ConsumerConfig.DEFAULT_MAX_POLL_RECORDS)
    )
      settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, Int.box(mostRecords))
    settings.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, Int.box(FETCH_WAIT_MS))
    settings
  }

  private def uninterruptibly[T](work: => T): T = Thread.currentThread match {
    case thread: UninterruptibleThread => thread.runUninterruptibly(work)
    case _ => work
  }
}

/** The offsets of Kafka's partitions in an offset of Spark's source. */
object KafkaOffsets {
  def of(offset: Offset): Map[TopicPartition, Long] = KafkaSourceOffset(offset).partitionToOffsets
}
