package glassflow

import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.fs.{LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

/** Hadoop's local file system for checkpoints, which asks the system itself for the permissions of a file. Without its
  * native library, which pyspark does not bring, Hadoop starts a `chmod` for every file that it makes. */
class LocalFiles extends LocalFileSystem(new RawLocalFiles)

class RawLocalFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit =
    // Java has no sticky bit.
    if (permission.getStickyBit) super.setPermission(path, permission)
    else Files.setPosixFilePermissions(pathToFile(path).toPath, PosixFilePermissions.fromString(permission.toString))
}
