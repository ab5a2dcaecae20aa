package glassflow

import java.io.{File, IOException}
import java.nio.file.{FileAlreadyExistsException => Exists, Files}

import scala.util.control.NonFatal

import org.apache.commons.io.output.DeferredFileOutputStream
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/** Spark's checkpoint files in a bucket of Google Cloud Storage, by Google's connector for Hadoop.
  *
  * The connector cannot abandon an upload that it has begun. So what is written is kept here until the stream is
  * closed, large files in a local one, and uploaded then. The condition is that the object has no generation.
  */
class GoogleFiles(root: Path, settings: Configuration) extends ObjectStoreFiles(root, settings) {
  private val folder = new File(settings.get(GoogleFiles.FOLDER, System.getProperty("java.io.tmpdir")))

  override def createAtomic(path: Path, overwriteIfPossible: Boolean): CancellableFSDataOutputStream = {
    Files.createDirectories(folder.toPath)
    val content = DeferredFileOutputStream.builder
      .setThreshold(GoogleFiles.IN_MEMORY)
      .setPrefix("upload-")
      .setDirectory(folder)
      .get()
    new AtomicFile(content, path, overwriteIfPossible)
  }

  private class AtomicFile(content: DeferredFileOutputStream, path: Path, overwrite: Boolean)
      extends CancellableFSDataOutputStream(content) {
    private var isDone = false

    override def close(): Unit = if (!isDone) {
      isDone = true
      try {
        content.close()
        upload(GoogleFiles.MOST_UPLOADS)
      } finally discard()
    }

    /** Discard what was written; after `close` there is nothing to discard. */
    override def cancel(): Unit = if (!isDone) {
      isDone = true
      try content.close()
      catch { case NonFatal(_) => } // The error that led here is the one to report.
      discard()
    }

    private def upload(tries: Int): Unit =
      try {
        val out = store.create(path, overwrite)
        content.writeTo(out)
        out.close()
      } catch {
        // Perhaps by this one, and the answer was lost: the driver finds out when it reads the checkpoint again.
        case error: IOException if !overwrite && isConflict(error) =>
          throw new FileAlreadyExistsException(s"$path: was written by another query").initCause(error)
        // A query that is stopped.
        case error: IOException if ObjectStoreFiles.says(error, "ClosedByInterruptException") => throw error
        // The connector overwrites the generation that it has found; another writer's may have come in between.
        case error: IOException =>
          if (tries == 1) throw error
          Thread.sleep(GoogleFiles.PAUSE_MS)
          upload(tries - 1)
      }

    private def discard(): Unit = if (!content.isInMemory) Files.deleteIfExists(content.getPath)
  }

  private def isConflict(error: IOException): Boolean = error match {
    case _: Exists | _: FileAlreadyExistsException => true
    case _ => ObjectStoreFiles.says(error, "412 Precondition Failed")
  }
}

object GoogleFiles {

  /** The setting of the local folder for large files; without it Java's for temporary files. */
  val FOLDER = "glassflow.google.folder"

  // Bytes. Offsets, commits and most changes of a state partition are smaller.
  private val IN_MEMORY = 1 << 20
  private val MOST_UPLOADS = 5
  private val PAUSE_MS = 500L
}
