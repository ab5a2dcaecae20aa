package glassflow

import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, TimeoutException}

import scala.jdk.CollectionConverters._

import org.apache.spark.{RunningTasks, SparkContext}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.{StreamingQuery, StreamingQueryListener}
import org.apache.spark.sql.streaming.StreamingQueryListener._

/** The sessions of a pool: of pipelines whose drivers share this JVM. Each has settings and queries of its own;
  * classes, threads, Spark's context and its tasks are common.
  */
object SharedSessions {
  private val sessions = new ConcurrentHashMap[String, SharedSession]
  private val tasks = new ConcurrentHashMap[SparkContext, RunningTasks]

  /** Called from Python, by the pool. Open a session. id: of the driver's attachment. root: the pool's own session. */
  def open(id: String, root: SparkSession): Unit = {
    val running = tasks.computeIfAbsent(root.sparkContext, new RunningTasks(_))
    sessions.put(id, new SharedSession(root, root.newSession(), running))
  }

  /** Called from Python, by the driver. The session of an attachment. */
  def of(id: String): SparkSession = sessions.get(id).session

  /** Called from Python, by the driver. Make the pool's own session the default of all threads again: pyspark makes
    * each session that it creates the default.
    */
  def restoreDefault(id: String): Unit = sessions.get(id).restoreDefault()

  /** Called from Python, by the pool. Stop the queries of a session, and wait until all their tasks have ended.
    *
    * Throws `TimeoutException` if that takes longer than `ms`.
    */
  def close(id: String, ms: Long): Unit = Option(sessions.remove(id)).foreach(_.close(ms))

  /** Note a query that is about to start, and that Spark's own list of a session's queries lacks. Throws where its
    * session was closed: the driver died in this moment.
    */
  def starting(session: SparkSession, query: StreamingQuery): Unit = if (!tasks.isEmpty)
    sessions.values.asScala.find(_.session eq session).getOrElse(throw new IllegalStateException(
      "the driver of the query is not attached any more"
    )).starting(query)
}

private class SharedSession(root: SparkSession, val session: SparkSession, tasks: RunningTasks) {
  private val queries, runs = ConcurrentHashMap.newKeySet[UUID]
  private val others = ConcurrentHashMap.newKeySet[StreamingQuery]
  private var isClosed = false
  private val listener = new StreamingQueryListener {
    // Called before the start of a query returns.
    override def onQueryStarted(event: QueryStartedEvent): Unit = started(event.id, event.runId)
    override def onQueryProgress(event: QueryProgressEvent): Unit = ()
    override def onQueryTerminated(event: QueryTerminatedEvent): Unit = ()
  }
  session.streams.addListener(listener)

  def restoreDefault(): Unit = SparkSession.setDefaultSession(root)

  def starting(query: StreamingQuery): Unit = synchronized {
    if (isClosed) throw new IllegalStateException("the driver of the query is not attached any more")
    others.add(query)
  }

  private def started(query: UUID, run: UUID): Unit = {
    queries.add(query)
    runs.add(run)
    // The driver died while Spark started its query. From another thread, as this one still starts it.
    if (synchronized(isClosed)) new Thread(() => Option(session.streams.get(query)).foreach(_.stop())).start()
  }

  def close(ms: Long): Unit = {
    val deadline = System.nanoTime() + ms * 1000000
    def left: Long = math.max(1, (deadline - System.nanoTime()) / 1000000)
    synchronized { isClosed = true }
    (session.streams.active.toSeq ++ others.asScala).foreach { query =>
      // Its thread is interrupted, and waited for; the jobs that it has begun are cancelled.
      session.conf.set("spark.sql.streaming.stopTimeout", left.toString)
      query.stop()
    }
    // A job that was submitted before it was cancelled may begin tasks after one look.
    var quiet = 0
    while (quiet < SharedSession.LOOKS) {
      if (System.nanoTime() > deadline) throw new TimeoutException(s"tasks of a query still run after $ms ms")
      quiet = if (runs.asScala.exists(tasks.areRunning)) 0 else quiet + 1
      Thread.sleep(SharedSession.POLLED_EVERY_MS)
    }
    queries.forEach(KeyFilters.forget(_))
    session.streams.removeListener(listener)
    restoreDefault()
  }
}

private object SharedSession {
  private val POLLED_EVERY_MS = 20L
  private val LOOKS = 3
}
