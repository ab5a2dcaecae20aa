package org.apache.spark.sql.inline

import java.lang.reflect.{InvocationTargetException, Method, Proxy}
import java.util.{ArrayList, LinkedHashMap}

import scala.jdk.CollectionConverters._

import _root_.glassflow.ForManyBatches

import org.apache.spark.SparkEnv
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.execution.ObjectOperator
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate._
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor._
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.timers.TimerValuesImpl
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.streaming.StatefulProcessor
import org.apache.spark.sql.types.{BinaryType, StructType}
import org.apache.spark.util.Utils

/** Spark's operator transformWithState for one batch after another, without a job: the same state stores, versions and
  * files as `TransformWithStateExec`, so that jobs and inline batches take turns on one state.
  *
  * operator: Spark's, with the state of its first batch; it must have neither timers nor a time to live nor an initial
  * state, and its rows must be partitioned by `partitioning`.
  */
class StatefulStage(operator: TransformWithStateExec, partitioning: HashPartitioning) {
  import StatefulStage._

  private val first: StatefulOperatorStateInfo = operator.getStateInfo
  private val (input, attributes) = (operator.child.output, operator.groupingAttributes)
  private val toPartition = UnsafeProjection.create(partitioning.partitionIdExpression :: Nil, input)
  private val toKeyRow = UnsafeProjection.create(attributes, input)
  private val toKey = ObjectOperator.deserializeRowToObject(operator.keyDeserializer, attributes)
  private val toValue = ObjectOperator.deserializeRowToObject(operator.valueDeserializer, operator.dataAttributes)
  private val toRow = ObjectOperator.wrapObjectToRow(operator.outputObjectType)
  private val conf = new StateStoreConf(operator.session.sessionState.conf)
  private val hadoop = operator.session.sessionState.newHadoopConf()

  /** The number of partitions of the state. */
  val partitions: Int = first.numPartitions

  /** Memory and files of the state stores in bytes, by partition, after their last batch. */
  val bytes: Array[Long] = new Array(partitions)

  private val opened: Array[Option[OpenedState]] = Array.fill(partitions)(None)

  /** Divide rows by the partition of their key, and within it by their key. */
  def divide(rows: Iterable[UnsafeRow]): Array[Groups] = {
    val divided = Array.fill(partitions)(new Groups)
    rows.foreach { row =>
      val groups = divided(toPartition(row).getInt(0))
      val key = toKeyRow(row)
      var group = groups.get(key)
      if (group == null) {
        group = new ArrayList[UnsafeRow]
        groups.put(key.copy(), group)
      }
      group.add(row)
    }
    divided
  }

  /** Process the rows of a partition, by key, and commit its state as the version after `batch`; pass the results to
    * `use`. To be run as the `InlineTask` of the partition. A failure leaves the state's version as it was.
    */
  def process(partition: Int, batch: Long, timeMs: Long, groups: Groups)(use: Iterator[InternalRow] => Unit): Unit = {
    val store = open(partition, batch)
    try {
      val state = stateOf(partition, store)
      use(results(state.processor, groups, timeMs))
      store.commit()
      bytes(partition) = size(store.metrics)
    } finally if (!store.hasCommitted) store.abort()
  }

  private def results(processor: Processor, groups: Groups, timeMs: Long): Iterator[InternalRow] = {
    val timers = new TimerValuesImpl(Some(timeMs), None)
    groups.entrySet.iterator.asScala.flatMap { group =>
      val key = toKey(group.getKey)
      // The states of the processor are those of this key while it is set.
      ImplicitGroupingKeyTracker.setImplicitKey(key)
      // All results, before the key is removed.
      val rows = processor.handleInputRows(key, group.getValue.iterator.asScala.map(toValue), timers).toArray
      ImplicitGroupingKeyTracker.removeImplicitKey()
      rows.iterator.map(toRow)
    }
  }

  /** The processor of a partition, ready for the batch of `store`. It stays initialized from batch to batch, which
    * takes longer than the batch itself, unless Spark has opened the state anew.
    */
  private def stateOf(partition: Int, store: StateStore): OpenedState = {
    val owner = StateOwner.of(store)
    val kept = opened(partition).filter(_.owner eq owner)
    // Only kept again once the batch has begun well.
    opened(partition) = None
    kept.foreach(_.current.store = store)
    val state = (kept, kept.map(_.processor)) match {
      case (Some(state), Some(processor: ForManyBatches)) =>
        processor.beginBatch()
        state
      case _ => initialized(store, owner)
    }
    opened(partition) = Some(state)
    state
  }

  private def initialized(store: StateStore, owner: AnyRef): OpenedState = {
    val current = new CurrentStore(store)
    // As in a task, which has a copy of its own: a processor has fields for its states.
    val processor = Utils.clone(operator.statefulProcessor, SparkEnv.get.closureSerializer.newInstance())
    val handle = new StatefulProcessorHandleImpl(
      current.asStore,
      first.queryRunId,
      operator.keyEncoder,
      operator.timeMode
    )
    processor.setHandle(handle)
    processor.init(operator.outputMode, operator.timeMode)
    handle.setHandleState(StatefulProcessorHandleState.INITIALIZED)
    OpenedState(owner, current, processor)
  }

  /** Open the store of a partition as it was before the batch. */
  private def open(partition: Int, batch: Long): StateStore = StateStore.get(
    StateStoreProviderId(StateStoreId(first.checkpointLocation, first.operatorId, partition), first.queryRunId),
    operator.keyEncoder.schema,
    NO_VALUE,
    NoPrefixKeyStateEncoderSpec(operator.keyEncoder.schema),
    version = batch,
    stateStoreCkptId = None,
    stateSchemaBroadcast = first.stateSchemaMetadata,
    useColumnFamilies = true,
    conf,
    hadoop,
    useMultipleValuesPerKey = true
  )

  private def size(metrics: StateStoreMetrics): Long = metrics.memoryUsedBytes +
    metrics.customMetrics.collectFirst { case (metric, size) if metric.name == "rocksdbSstFileSize" => size }
      .getOrElse(0L)
}

object StatefulStage {

  /** Rows by the key of their group. */
  type Groups = LinkedHashMap[UnsafeRow, ArrayList[UnsafeRow]]
  private type Processor = StatefulProcessor[Any, Any, Any]

  // The schema of the default column family's values, which transformWithState does not use.
  private val NO_VALUE = new StructType().add("value", BinaryType)

  /** The processor of a partition, whose states read and write `current`. owner: the provider of its stores. */
  private case class OpenedState(owner: AnyRef, current: CurrentStore, processor: Processor)

  /** A state store that passes all calls to the one of the current batch. */
  private class CurrentStore(var store: StateStore) {
    val asStore: StateStore = Proxy.newProxyInstance(
      classOf[StateStore].getClassLoader,
      Array(classOf[StateStore]),
      (_: AnyRef, method: Method, arguments: Array[AnyRef]) =>
        try method.invoke(store, Option(arguments).getOrElse(Array.empty[AnyRef]): _*)
        catch { case failed: InvocationTargetException => throw failed.getCause }
    ).asInstanceOf[StateStore]
  }
}
