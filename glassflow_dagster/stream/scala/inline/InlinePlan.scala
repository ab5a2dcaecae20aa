package org.apache.spark.sql.inline

import java.util.Properties

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.spark.InlineTask
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeRow}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic.SparkSession

/** A prepared physical plan of a streaming query, with a state or without, for batches that run inline.
  *
  * before: the stages from Kafka's records to the state, or to the end where there is none. state: the state, and the
  * stages after it.
  */
private[inline] class InlinePlan(
    before: PreparedStage,
    state: Option[(StatefulStage, PreparedStage)],
    output: Seq[Attribute],
    session: SparkSession,
    clock: BatchTimeHolder
) {
  private val conf = session.sessionState.conf
  private val arrow = new RowsToArrow(DataTypeUtils.fromAttributes(output), conf.sessionLocalTimeZone)
  private val Seq(offset, rank, partition, item) =
    InlinePlan.POSITION.map(name => output.indexWhere(_.name == name))

  /** Memory and files of the state in bytes, after the last batch. */
  def stateBytes: Long = state.map(_._1.bytes.sum).getOrElse(0)

  /** Run the plan on the records of a batch; return the rows as an Arrow stream, in the order of their records. None
    * where the records are so large that a job must run it; the state is then as it was. ofJob: the local properties
    * that the batch's jobs would have.
    */
  def run(batch: BatchRecords, id: Long, timeMs: Long, ofJob: Map[String, String]): Option[Array[Byte]] = {
    clock.micros = timeMs * 1000
    val properties = new Properties
    properties.putAll(ofJob.asJava)
    val found = new ArrayBuffer[UnsafeRow]
    def keep(rows: Iterator[InternalRow]): Unit = rows.foreach(row => found += row.asInstanceOf[UnsafeRow].copy())
    val mapped = InlineTask.run(0, 1, properties, conf)(copies(before.rows(batch.rows)))
    if (mapped.isEmpty) return None
    state match {
      case None => found ++= mapped.get
      case Some((keyed, after)) =>
        val divided = keyed.divide(mapped.get)
        // Each partition gets a version of its state with each batch, also without a record.
        divided.indices.foreach { partition =>
          InlineTask.run(partition, keyed.partitions, properties, conf) {
            keyed.process(partition, id, timeMs, divided(partition))(results => keep(after.rows(results)))
          }
        }
    }
    Some(InlineTask.run(0, 1, properties, conf)(arrow.stream(found.sortWith(precedes).iterator)))
  }

  /** Copies of rows, which otherwise overwrite each other; None where they have too many bytes for an inline batch. */
  private def copies(rows: Iterator[InternalRow]): Option[ArrayBuffer[UnsafeRow]] = {
    val kept = new ArrayBuffer[UnsafeRow]
    var bytes = 0L
    while (bytes <= InlineOrJob.MOST_BYTES && rows.hasNext) {
      val row = rows.next().asInstanceOf[UnsafeRow]
      bytes += row.getSizeInBytes
      kept += row.copy()
    }
    Option.when(bytes <= InlineOrJob.MOST_BYTES)(kept)
  }

  def close(): Unit = arrow.close()

  private def precedes(one: UnsafeRow, other: UnsafeRow): Boolean = {
    val byOffset = java.lang.Long.compare(one.getLong(offset), other.getLong(offset))
    val byRank = if (byOffset != 0) byOffset else Integer.compare(one.getInt(rank), other.getInt(rank))
    val byPartition = if (byRank != 0) byRank else Integer.compare(one.getInt(partition), other.getInt(partition))
    if (byPartition != 0 || item < 0) byPartition < 0 else one.getInt(item) < other.getInt(item)
  }
}

private object InlinePlan {

  // In this order they order the rows of a batch: offset LONG, topic_rank INT, partition INT, and of a source whose
  // records are many events item INT.
  private val POSITION = Seq("offset", "topic_rank", "partition", "item")
}
