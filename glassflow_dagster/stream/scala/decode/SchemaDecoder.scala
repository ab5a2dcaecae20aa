package glassflow

import java.time.DateTimeException

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Decodes records that are written with a schema.
  *
  * kind: the format as the registry calls it.
  *
  * @param spec
  *   JSON: {"fields": [[name, kind, required], ...], "schema": the schema's text or null, "registry": the name of a
  *   declared registry or null, "schema_id": whether a schema id is before what is decoded or in a header, "part": what
  *   of a record is decoded, its "value" or its "key"}
  */
abstract class SchemaDecoder(spec: String, kind: String) extends PartDecoder {
  protected val node: JsonNode = new ObjectMapper().readTree(spec)
  protected val fields: Array[JsonField] = StrictJson.readFields(node.get("fields"))
  protected val given: String = node.get("schema").asText(null)
  protected val registry: String = node.get("registry").asText(null)
  private val hasId: Boolean = node.get("schema_id").asBoolean
  private val part: String = node.get("part").asText
  private val settings: RegistrySettings = if (registry == null) null else RegistrySettings.of(registry)

  override val schema: StructType = StrictJson.schemaOf(fields)

  // Each task has a decoder of its own.
  @transient protected lazy val root: Node = Node(fields)
  @transient private lazy val store: SchemaStore = SchemaStore.of(registry, settings)

  /** Read the fields of a value into `values`. Throws Refusal.
    *
    * @param start
    *   where the event begins, behind a schema id
    * @param id
    *   the bytes that begin with the schema id: the value, or a header; null without one. idEnd: the end of the id
    */
  protected def read(value: Array[Byte], start: Int, id: Array[Byte], idEnd: Int, values: Array[Any]): Unit

  override def decode(value: Array[Byte], headers: ArrayData): InternalRow = {
    val values = new Array[Any](fields.length + 1)
    try readAll(value, headers, values)
    catch {
      case refusal: Refusal => refuse(values, refusal.getMessage)
      // No bytes are known that lead here; if there are, they must not end a pipeline. It depends on them alone, so a
      // repeated batch decides the same.
      case error @ (_: ArithmeticException | _: DateTimeException | _: IndexOutOfBoundsException |
          _: ClassCastException | _: IllegalArgumentException | _: NegativeArraySizeException |
          _: NullPointerException | _: MatchError) =>
        refuse(values, s"the $part cannot be decoded: $error")
    }
    new GenericInternalRow(values)
  }

  private def refuse(values: Array[Any], reason: String): Unit = {
    java.util.Arrays.fill(values.asInstanceOf[Array[AnyRef]], null)
    values(fields.length) = UTF8String.fromString(reason)
  }

  private def readAll(value: Array[Byte], headers: ArrayData, values: Array[Any]): Unit = {
    if (value == null) throw new Refusal(s"the record has no $part")
    val header = if (hasId) SchemaId.header(headers, part) else null
    if (!hasId) read(value, 0, null, 0, values)
    else if (header != null) read(value, 0, header, SchemaId.length(header, "the header"), values)
    else {
      val length = SchemaId.length(value, s"the $part")
      read(value, length, value, length, values)
    }
  }

  /** What is made of registered schemas, once of each. make: of the texts of a schema; throws Refusal for an invalid
    * one, which is kept, too.
    */
  protected final class OfRegistered[T](make: Seq[String] => T) {
    private val made = new java.util.HashMap[String, Either[Refusal, T]]()

    /** Of the schema whose id begins these bytes. Throws Refusal. */
    def of(bytes: Array[Byte]): T = {
      val id = SchemaId.text(bytes)
      var found = made.get(id)
      if (found == null) {
        // Not kept where it is unknown, as it may be known in the next batch.
        val texts = registered(id)
        found =
          try Right(make(texts))
          catch { case refusal: Refusal => Left(new Refusal(s"schema $id ${refusal.getMessage}")) }
        made.put(id, found)
      }
      found.fold(refusal => throw refusal, identity)
    }
  }

  /** What reads the records that begin as the last one did, with its schema id: nearly all do. */
  protected final class LastStart[T] {
    private var start: Array[Byte] = _
    var reads: T = _

    def length: Int = start.length

    /** Whether these bytes begin so, too. No id begins with another one. */
    def begins(bytes: Array[Byte]): Boolean = start != null && SchemaDecoder.beginsWith(bytes, start)

    def set(bytes: Array[Byte], end: Int, found: T): Unit = {
      reads = found
      start = java.util.Arrays.copyOf(bytes, end)
    }
  }

  private def registered(id: String): Seq[String] = {
    val found = store.find(id).getOrElse(throw new Refusal(s"the schema registry has no schema with the id $id"))
    if (found.kind != kind) throw new Refusal(s"schema $id is of type ${found.kind}, not $kind")
    found.texts
  }
}

object SchemaDecoder {

  /** Whether bytes begin with others. */
  def beginsWith(bytes: Array[Byte], start: Array[Byte]): Boolean =
    bytes.length >= start.length && java.util.Arrays.equals(bytes, 0, start.length, start, 0, start.length)

  /** How deep records, messages, arrays and maps may be in each other: as in Google's libraries for Protobuf. They are
    * read recursively, and the stack must not overflow.
    */
  final val DEEPEST = 100
}
