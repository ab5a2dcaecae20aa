package glassflow

import java.io.{File, OutputStream}
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.fs.{LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

/** Hadoop's local file system for checkpoints.
  *
  * It asks the system itself for the permissions of a file: without its native library, which pyspark does not bring,
  * Hadoop starts a `chmod` for every file that it makes.
  *
  * And what Spark has written down is on the disk before Spark goes on: the bytes of a file when it is closed, its name
  * when it has it. Spark leaves that to the file system, and Hadoop's leaves it to the system, which has some 30
  * seconds in hand: a machine that loses its power then keeps our plan, but neither the offsets nor the state that
  * belong to it.
  */
class LocalFiles extends LocalFileSystem(new RawLocalFiles)

class RawLocalFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit =
    // Java has no sticky bit.
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

  /** Put a file's bytes, or a folder's entries, on the disk. */
  private[glassflow] def sync(file: File): Unit = {
    val channel = FileChannel.open(file.toPath, StandardOpenOption.READ)
    try channel.force(true)
    finally channel.close()
  }
}

/** A file whose bytes are on the disk when it is closed. */
private class SyncedStream(out: OutputStream, file: File) extends OutputStream {
  override def write(byte: Int): Unit = out.write(byte)
  override def write(bytes: Array[Byte], from: Int, length: Int): Unit = out.write(bytes, from, length)
  override def flush(): Unit = out.flush()
  override def close(): Unit = {
    out.close()
    RawLocalFiles.sync(file)
  }
}
