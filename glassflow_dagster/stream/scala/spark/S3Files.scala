package glassflow

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStream, FileAlreadyExistsException, Path}
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/** Spark's checkpoint files in an S3 bucket, by Hadoop's S3A.
  *
  * A file appears by one PUT, or by the end of a multipart upload; the condition is `If-None-Match: *`.
  */
class S3Files(root: Path, settings: Configuration) extends ObjectStoreFiles(root, settings) {
  private val WRITER = "glassflow-writer"

  override def createAtomic(path: Path, overwriteIfPossible: Boolean): CancellableFSDataOutputStream = {
    // `overwrite` only means that S3A need not look for the file first.
    val file = store.createFile(path).recursive().overwrite(true)
    if (overwriteIfPossible) new AtomicFile(file.build())
    else {
      val writer = UUID.randomUUID().toString
      file.must(FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true).opt(s"fs.s3a.create.header.$WRITER", writer)
      new NewFile(file.build(), path, writer)
    }
  }

  private class AtomicFile(out: FSDataOutputStream) extends CancellableFSDataOutputStream(out) {
    private var isDone = false

    override def close(): Unit = if (!isDone) {
      isDone = true
      finish()
    }

    /** Discard what was written; after `close` there is nothing to discard. */
    override def cancel(): Unit = if (!isDone) {
      isDone = true
      try out.abort()
      catch { case NonFatal(_) => } // Nothing has appeared, and the error that led here is the one to report.
    }

    protected def finish(): Unit = out.close()
  }

  /** A file that must not exist. writer: by which it is recognized, as the answer to a PUT may be lost, and S3A repeats
    * the PUT, which then finds the file.
    */
  private class NewFile(out: FSDataOutputStream, path: Path, writer: String) extends AtomicFile(out) {
    override protected def finish(): Unit =
      try super.finish()
      catch {
        case error: IOException if ObjectStoreFiles.says(error, "Status Code: 412", "PreconditionFailed") =>
          if (!isOwn) throw new FileAlreadyExistsException(s"$path: was written by another query").initCause(error)
      }

    private def isOwn: Boolean = new String(store.getXAttr(path, s"header.$WRITER"), UTF_8) == writer
  }
}
