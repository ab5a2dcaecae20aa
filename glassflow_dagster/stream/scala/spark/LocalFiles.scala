package glassflow

import java.io.{File, OutputStream}
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.fs.{LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

/** Hadoop's local file system for checkpoints.
  *
  * It sets permissions by Java's own API: without its native library, which pyspark does not contain, Hadoop starts a
  * `chmod` process for every file that it creates.
  *
  * And it writes durably (fsync): a file's bytes when it is closed, its name when it is created or renamed. Hadoop's
  * own local file system leaves that to the operating system, which may take some 30 seconds: after a power failure a
  * batch's plan, which is synced, would be there without the offsets and the state that belong to it.
  */
class LocalFiles extends LocalFileSystem(new RawLocalFiles)

class RawLocalFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit =
    // Java's API has no sticky bit.
    if (permission.getStickyBit) super.setPermission(path, permission)
    else Files.setPosixFilePermissions(pathToFile(path).toPath, PosixFilePermissions.fromString(permission.toString))

  override def rename(from: Path, to: Path): Boolean = {
    val renamed = super.rename(from, to)
    if (renamed) RawLocalFiles.sync(pathToFile(to).getParentFile)
    renamed
  }

  override protected def mkOneDirWithMode(path: Path, folder: File, permission: FsPermission): Boolean = {
    val made = super.mkOneDirWithMode(path, folder, permission)
    if (made) RawLocalFiles.sync(folder.getParentFile)
    made
  }

  override protected def createOutputStream(path: Path, append: Boolean): OutputStream =
    new SyncedStream(super.createOutputStream(path, append), pathToFile(path))

  override protected def createOutputStreamWithMode(
      path: Path,
      append: Boolean,
      permission: FsPermission
  ): OutputStream =
    new SyncedStream(super.createOutputStreamWithMode(path, append, permission), pathToFile(path))
}

object RawLocalFiles {

  /** Write a file's bytes, or a folder's entries, to the disk (fsync). */
  private[glassflow] def sync(file: File): Unit = {
    val channel = FileChannel.open(file.toPath, StandardOpenOption.READ)
    try channel.force(true)
    finally channel.close()
  }
}

/** An output file that is synced to the disk when it is closed. */
private class SyncedStream(out: OutputStream, file: File) extends OutputStream {
  override def write(byte: Int): Unit = out.write(byte)
  override def write(bytes: Array[Byte], from: Int, length: Int): Unit = out.write(bytes, from, length)
  override def flush(): Unit = out.flush()
  override def close(): Unit = {
    out.close()
    RawLocalFiles.sync(file)
  }
}
