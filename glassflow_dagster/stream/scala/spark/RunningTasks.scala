// In Spark's own package, as the queue of its events is private to it.
package org.apache.spark

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.scheduler._

/** Knows which queries have running tasks. A task of a cancelled job runs until it notices that. */
class RunningTasks(context: SparkContext) {
  private val stages = new ConcurrentHashMap[Int, RunningStage]
  private val listener: SparkListener = new SparkListener {
    override def onStageSubmitted(event: SparkListenerStageSubmitted): Unit =
      // The job group of a query is its run.
      Option(event.properties).flatMap(all => Option(all.getProperty("spark.jobGroup.id")))
        .foreach(run => stages.put(event.stageInfo.stageId, RunningStage(run, tasks = 0, hasEnded = false)))

    override def onTaskStart(event: SparkListenerTaskStart): Unit =
      update(event.stageId)(stage => stage.copy(tasks = stage.tasks + 1))

    override def onTaskEnd(event: SparkListenerTaskEnd): Unit =
      update(event.stageId)(stage => stage.copy(tasks = stage.tasks - 1))

    // That of a cancelled job has tasks after its end.
    override def onStageCompleted(event: SparkListenerStageCompleted): Unit =
      update(event.stageInfo.stageId)(_.copy(hasEnded = true))
  }
  // Of its own, so that slow listeners of others do not make it lose events.
  context.listenerBus.addToQueue(listener, "glassflow")

  /** Whether tasks of a query's run are running. */
  def areRunning(run: UUID): Boolean = {
    // Events of tasks that have started may still be on their way.
    context.listenerBus.waitUntilEmpty()
    stages.values.asScala.exists(stage => stage.run == run.toString && stage.tasks > 0)
  }

  private def update(stage: Int)(change: RunningStage => RunningStage): Unit = stages.computeIfPresent(
    stage,
    (_, before) => Option(change(before)).filterNot(after => after.hasEnded && after.tasks <= 0).orNull
  )
}

private case class RunningStage(run: String, tasks: Int, hasEnded: Boolean)
