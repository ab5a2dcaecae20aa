// In Spark's own package, as the context of a task is private to it.
package org.apache.spark

import java.util.Properties
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.memory.TaskMemoryManager
import org.apache.spark.sql.internal.SQLConf

/** Runs work in the calling thread as if it were a task of a Spark job: with a TaskContext, from which Spark's
  * operators take their memory, their partition and the batch, and whose listeners are called at the end.
  */
object InlineTask {
  // Spark numbers its tasks upwards from 0. These go down, so no task of a job has the same number, by which the memory
  // manager counts what each task uses.
  private val numbers = new AtomicLong(-1)
  // Of no stage of a job.
  private val STAGE = -1

  /** Run `work` as the task of a partition. properties: the local properties of its job. conf: its SQL settings. */
  def run[T](partition: Int, partitions: Int, properties: Properties, conf: SQLConf)(work: => T): T = {
    val number = numbers.getAndDecrement()
    val memory = new TaskMemoryManager(SparkEnv.get.memoryManager, number)
    val task =
      new TaskContextImpl(STAGE, 0, partition, number, 0, partitions, memory, properties, SparkEnv.get.metricsSystem)
    TaskContext.setTaskContext(task)
    try SQLConf.withExistingConf(conf) {
        val result =
          try work
          catch {
            case error: Throwable =>
              task.markTaskFailed(error)
              task.markTaskCompleted(Some(error))
              throw error
          }
        task.markTaskCompleted(None)
        result
      }
    finally {
      TaskContext.unset()
      memory.cleanUpAllAllocatedMemory()
    }
  }
}
