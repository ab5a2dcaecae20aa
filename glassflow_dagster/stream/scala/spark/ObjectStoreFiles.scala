package glassflow

import java.io.FileNotFoundException

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FileStatus, FileSystem, Path, PathFilter}
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

/** Spark's checkpoint files in an object store, by one of Hadoop's file systems.
  *
  * Spark's own manager writes to a temporary file and renames it, which an object store copies, and where two writers
  * can both succeed. Here a file appears when its stream is closed. A file that must not exist is written on that
  * condition, so that of several writers one succeeds, and the others get a FileAlreadyExistsException. A stream that
  * is cancelled, or never closed, leaves no file.
  *
  * Folders do not exist: none is created, and one without files is empty.
  */
abstract class ObjectStoreFiles(root: Path, settings: Configuration) extends CheckpointFileManager {
  protected val store: FileSystem = root.getFileSystem(settings)

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
}

object ObjectStoreFiles {

  /** Whether one of the texts is in an error, or in one of those that have led to it. */
  def says(error: Throwable, texts: String*): Boolean =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).exists(each => texts.exists(each.toString.contains))
}
