package glassflow

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, StandardCopyOption, StandardOpenOption}
import java.util.concurrent.ConcurrentHashMap

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.TaskContext

import scala.jdk.CollectionConverters._

/** The schemas of a registry that this JVM has fetched. Each is fetched once, and kept in a folder of the checkpoint,
  * so that a repeated batch needs no registry.
  *
  * That an id is unknown holds for one batch: its records are dead letters, and when the batch is repeated they must be
  * dead letters again, although the registry may know the id by then. In a later batch it is asked for again.
  */
final class SchemaStore(settings: RegistrySettings) {
  import SchemaStore._

  private val client = new RegistryClient(settings)
  private val folder: Path = if (settings.folder == null) null else Path.of(settings.folder)
  private val known = new ConcurrentHashMap[String, RegisteredSchema]()
  private val json = new ObjectMapper()
  // The ids that nobody knew in a batch; of the batch "" outside of batches.
  private var batchOfUnknown: String = _
  private val unknown = new java.util.HashSet[String]()

  /** The schema with an id; None where nobody knows it. Throws RegistryError. */
  def find(id: String): Option[RegisteredSchema] = {
    val found = known.get(id)
    // One request for an id, however many tasks want it, so that all records of a batch are decided alike.
    if (found != null) Some(found) else synchronized(Option(known.get(id)).orElse(load(id)))
  }

  private def load(id: String): Option[RegisteredSchema] = {
    begin(currentBatch)
    if (unknown.contains(id)) None
    else {
      val found = kept(id).orElse(fetch(id))
      found.foreach(known.put(id, _))
      found
    }
  }

  /** Forget what was unknown in an earlier batch, and read what was in this one before a crash. */
  private def begin(batch: String): Unit = if (batch != batchOfUnknown) {
    unknown.clear()
    read(unknownIn(batch)).foreach(_.linesIterator.foreach(unknown.add))
    if (folder != null && Files.isDirectory(folder)) {
      val others = Files.newDirectoryStream(folder, s"$UNKNOWN*")
      try others.forEach(file => if (file.getFileName.toString != unknownIn(batch)) Files.delete(file))
      finally others.close()
    }
    batchOfUnknown = batch
  }

  private def fetch(id: String): Option[RegisteredSchema] = {
    val found = client.schema(id)
    found match {
      case Some(schema) => keep(s"$id.json", text(schema))
      case None =>
        append(unknownIn(batchOfUnknown), id)
        unknown.add(id)
    }
    found
  }

  private def kept(id: String): Option[RegisteredSchema] = read(s"$id.json").map { content =>
    val node = json.readTree(content)
    RegisteredSchema(node.get("kind").asText, node.get("texts").elements.asScala.map(_.asText).toSeq)
  }

  private def text(schema: RegisteredSchema): String = {
    val node = json.createObjectNode()
    node.put("kind", schema.kind)
    schema.texts.foreach(node.withArrayProperty("texts").add(_))
    json.writeValueAsString(node)
  }

  private def read(name: String): Option[String] = {
    val file = if (folder == null) null else folder.resolve(name)
    if (file != null && Files.exists(file)) Some(Files.readString(file)) else None
  }

  /** Add a line to a file, synced. A line that a crash has cut off is of no record that is written. */
  private def append(name: String, line: String): Unit = if (folder != null) {
    create()
    val file = folder.resolve(name)
    val isNew = !Files.exists(file)
    Files.writeString(file, s"$line\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND)
    sync(file)
    if (isNew) sync(folder)
  }

  private def create(): Unit = if (!Files.isDirectory(folder)) {
    Files.createDirectories(folder)
    Seq(folder.getParent, folder.getParent.getParent).foreach(sync)
  }

  /** Write a file as a whole, synced with its folder, before a batch depends on it. */
  private def keep(name: String, content: String): Unit = if (folder != null) {
    create()
    val temporary = Files.createTempFile(folder, s".$name.", ".tmp")
    Files.write(temporary, content.getBytes(UTF_8))
    sync(temporary)
    Files.move(temporary, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE)
    sync(folder)
  }
}

object SchemaStore {
  private final val UNKNOWN = "unknown-"
  private def unknownIn(batch: String): String = s"$UNKNOWN$batch"

  private def sync(path: Path): Unit = RawLocalFiles.sync(path.toFile)

  private val stores = new ConcurrentHashMap[String, SchemaStore]()

  /** This JVM's store of a declared registry. */
  def of(name: String, settings: RegistrySettings): SchemaStore =
    stores.computeIfAbsent(s"$name\u0000${settings.folder}", _ => new SchemaStore(settings))

  /** Forget the stores of a name, whose settings may have changed. */
  def forget(name: String): Unit = stores.keySet.removeIf(_.startsWith(s"$name\u0000"))

  /** The id of the micro-batch that the calling task belongs to; "" outside of one. */
  private def currentBatch: String =
    Option(TaskContext.get).flatMap(task => Option(task.getLocalProperty("streaming.sql.batchId"))).getOrElse("")
}
