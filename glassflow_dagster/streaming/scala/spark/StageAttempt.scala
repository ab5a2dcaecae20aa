package glassflow

import org.apache.spark.TaskContext

/** How often Spark has begun a task's stage before: one that lost its input to a dead executor is begun again, with
  * tasks that are on their first attempt.
  */
object StageAttempt {
  def ofTask(): Int = {
    val task = TaskContext.get()
    if (task == null) 0 else task.stageAttemptNumber()
  }
}
