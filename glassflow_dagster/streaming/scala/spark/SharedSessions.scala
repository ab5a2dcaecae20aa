package glassflow

import java.util.concurrent.{ConcurrentHashMap, TimeoutException}

import scala.jdk.CollectionConverters._

import org.apache.spark.{RunningTasks, SparkContext}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.StreamingQuery

/** The sessions of a pool: of pipelines whose drivers share this JVM. Each has settings and queries of its own;
  * classes, threads, Spark's context and its tasks are common.
  */
object SharedSessions {
  private val sessions = new ConcurrentHashMap[String, SharedSession]
  private val tasks = new ConcurrentHashMap[SparkContext, RunningTasks]

  /** Called from Python, by the pool. Open a session. id: of the driver's attachment. root: the pool's own session. */
  def open(id: String, root: SparkSession): Unit = {
    val context = root.sparkContext
    val running = tasks.computeIfAbsent(context, new RunningTasks(_))
    sessions.put(id, new SharedSession(root, root.newSession(), running))
  }

  /** Called from Python, by the driver. The session of an attachment. */
  def of(id: String): SparkSession = sessions.get(id).session

  /** Called from Python, by the driver. Make the pool's own session the default of all threads again: pyspark makes
    * each session that it creates the default.
    */
  def restoreDefault(id: String): Unit = SparkSession.setDefaultSession(sessions.get(id).root)

  /** Called from Python, by the pool. Stop the queries of a session, and wait until all their tasks have ended.
    *
    * Throws `TimeoutException` if that takes longer than `ms`.
    */
  def close(id: String, ms: Long): Unit = Option(sessions.remove(id)).foreach(_.close(ms))

  /** Note a query that Spark's own list of a session's queries lacks. */
  def started(session: SparkSession, query: StreamingQuery): Unit =
    sessions.values.asScala.find(_.session eq session).foreach(_.started(query))
}

private class SharedSession(val root: SparkSession, val session: SparkSession, tasks: RunningTasks) {
  private val others = ConcurrentHashMap.newKeySet[StreamingQuery]

  def started(query: StreamingQuery): Unit = others.add(query)

  def close(ms: Long): Unit = {
    val queries = session.streams.active.toSeq ++ others.asScala
    // The query's thread is interrupted, and waited for; the jobs that it has begun are cancelled.
    session.conf.set("spark.sql.streaming.stopTimeout", ms.toString)
    queries.foreach(_.stop())
    val deadline = System.nanoTime() + ms * 1000000
    while (queries.exists(query => tasks.areRunning(query.runId))) {
      if (System.nanoTime() > deadline) throw new TimeoutException(s"tasks of a query still run after $ms ms")
      Thread.sleep(SharedSession.POLLED_EVERY_MS)
    }
    queries.foreach(query => KeyFilters.forget(query.id))
  }
}

private object SharedSession {
  private val POLLED_EVERY_MS = 20L
}
