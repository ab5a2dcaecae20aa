package glassflow

import org.apache.spark.TaskContext

/** The number of times that Spark has begun a task's stage before. A stage that lost its input with a dead executor is
  * begun again, and its tasks then count as first attempts: only this number shows the repetition.
  */
object StageAttempt {
  def ofTask(): Int = {
    val task = TaskContext.get()
    if (task == null) 0 else task.stageAttemptNumber()
  }
}
