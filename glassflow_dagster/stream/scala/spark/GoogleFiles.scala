package glassflow

import java.io.IOException
import java.nio.file.{FileAlreadyExistsException => Exists}

import org.apache.commons.io.output.DeferredFileOutputStream
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}

/** Spark's checkpoint files in a bucket of Google Cloud Storage, by Google's connector for Hadoop.
  *
  * The condition is that the object has no generation.
  */
class GoogleFiles(root: Path, settings: Configuration) extends UploadedFiles(root, settings) {
  override protected def upload(content: DeferredFileOutputStream, path: Path, overwrite: Boolean): Unit =
    upload(content, path, overwrite, GoogleFiles.MOST_UPLOADS)

  private def upload(content: DeferredFileOutputStream, path: Path, overwrite: Boolean, tries: Int): Unit =
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
        upload(content, path, overwrite, tries - 1)
    }

  private def isConflict(error: IOException): Boolean = error match {
    case _: Exists | _: FileAlreadyExistsException => true
    case _ => ObjectStoreFiles.says(error, "412 Precondition Failed")
  }
}

private object GoogleFiles {
  private val MOST_UPLOADS = 5
  private val PAUSE_MS = 500L
}
