package glassflow

import java.io.File
import java.nio.file.Files

import scala.util.control.NonFatal

import org.apache.commons.io.output.DeferredFileOutputStream
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/** Spark's checkpoint files in an object store whose client cannot abandon an upload that it has begun.
  *
  * So what is written is kept here until the stream is closed, large files in a local one, and uploaded then.
  */
abstract class UploadedFiles(root: Path, settings: Configuration) extends ObjectStoreFiles(root, settings) {
  private val folder = new File(settings.get(UploadedFiles.FOLDER, System.getProperty("java.io.tmpdir")))

  /** Upload a file in one step; without `overwrite` throw FileAlreadyExistsException if there is one. */
  protected def upload(content: DeferredFileOutputStream, path: Path, overwrite: Boolean): Unit

  override def createAtomic(path: Path, overwriteIfPossible: Boolean): CancellableFSDataOutputStream = {
    Files.createDirectories(folder.toPath)
    val content = DeferredFileOutputStream.builder
      .setThreshold(UploadedFiles.IN_MEMORY)
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
        upload(content, path, overwrite)
      } finally discard()
    }

    /** Discard what was written; after `close` there is nothing to discard. */
    override def cancel(): Unit = if (!isDone) {
      isDone = true
      try content.close()
      catch { case NonFatal(_) => } // The error that led here is the one to report.
      discard()
    }

    private def discard(): Unit = if (!content.isInMemory) Files.deleteIfExists(content.getPath)
  }
}

object UploadedFiles {

  /** The setting of the local folder for large files; without it Java's for temporary files. */
  val FOLDER = "glassflow.upload.folder"

  // Bytes. Offsets, commits and most changes of a state partition are smaller.
  private val IN_MEMORY = 1 << 20
}
