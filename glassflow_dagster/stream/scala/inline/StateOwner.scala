// In Spark's own package, as the provider of a store is private to it.
package org.apache.spark.sql.execution.streaming.state

object StateOwner {

  /** The provider that a state store comes from. It is another one after Spark has unloaded the state of a partition.
    */
  def of(store: StateStore): AnyRef = store match {
    case rocks: RocksDBStateStoreProvider#RocksDBStateStore => rocks.creatingProvider
    case other => other
  }
}
