package glassflow

import java.io.{FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FSDataOutputStream, FileAlreadyExistsException, FileStatus}
import org.apache.hadoop.fs.{Path, PathFilter}
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/** Spark's checkpoint files in an object store, by Hadoop's S3A.
  *
  * Spark's own manager writes to a temporary file and renames it, which an object store copies, and where two writers
  * can both succeed. Here a file appears when its stream is closed: by one PUT, or by the end of a multipart upload. A
  * file that must not exist is written with `If-None-Match: *`, so that of several writers one succeeds, and the others
  * get a FileAlreadyExistsException. A stream that is cancelled, or never closed, leaves no file.
  *
  * Folders do not exist: none is created, and one without files is empty.
  */
class ObjectStoreFiles(root: Path, settings: Configuration) extends CheckpointFileManager {
  private val store = root.getFileSystem(settings)

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

  override def open(path: Path): FSDataInputStream = store.open(path)

  override def list(path: Path, filter: PathFilter): Array[FileStatus] =
    try store.listStatus(path, filter)
    catch { case _: FileNotFoundException => Array.empty }

  override def mkdirs(path: Path): Unit = ()

  override def exists(path: Path): Boolean = store.exists(path)

  override def delete(path: Path): Unit =
    try store.delete(path, true)
    catch { case _: FileNotFoundException => }

  override def isLocal: Boolean = false

  override def createCheckpointDirectory(): Path = store.makeQualified(root)

  private val WRITER = "glassflow-writer"

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
        case error: IOException if ObjectStoreFiles.isConflict(error) =>
          if (!isOwn) throw new FileAlreadyExistsException(s"$path: was written by another query").initCause(error)
      }

    private def isOwn: Boolean = new String(store.getXAttr(path, s"header.$WRITER"), UTF_8) == writer
  }
}

object ObjectStoreFiles {

  /** Whether the store has refused to write a file because it exists (HTTP status 412). */
  private def isConflict(error: Throwable): Boolean =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).exists { each =>
      each.toString.contains("Status Code: 412") || each.toString.contains("PreconditionFailed")
    }
}
