package glassflow

import org.apache.avro.{NameValidator, Schema}

import scala.util.control.NonFatal

/** Decodes Avro records to the declared fields, as strictly as StrictJson decodes JSON, and to the same columns.
  *
  * @param spec
  *   see SchemaDecoder; the schema that is given is the writer's without a registry, and with one the reader's
  */
class AvroDecoder(spec: String) extends SchemaDecoder(spec) {
  import AvroDecoder._

  @transient private lazy val in = new AvroInput
  @transient private lazy val reader: Option[Schema] = Option(given).map(text => parse(Seq(text)))
  @transient private lazy val ofGiven = new AvroRecords(reader.get, None, fields, root)
  @transient private lazy val ofRegistered = new OfRegistered(texts =>
    try new AvroRecords(parse(texts), reader, fields, root)
    catch { case NonFatal(error) => throw new Refusal(s"is invalid: ${error.getMessage}") }
  )
  // Nearly all records have the id of the one before.
  @transient private var lastId: Array[Byte] = _
  @transient private var last: AvroRecords = _

  override protected def kind: String = "AVRO"

  override protected def read(
      value: Array[Byte],
      start: Int,
      id: Array[Byte],
      idEnd: Int,
      values: Array[Any]
  ): Unit = {
    val records = if (registry == null) ofGiven else of(id, idEnd)
    in.open(value, start)
    records.read(in, values)
  }

  private def of(id: Array[Byte], length: Int): AvroRecords = {
    // No id begins with another one.
    if (lastId == null || !SchemaDecoder.beginsWith(id, lastId)) {
      last = ofRegistered.of(id)
      lastId = java.util.Arrays.copyOf(id, length)
    }
    last
  }
}

object AvroDecoder {

  /** Parse a schema, whose text comes last, after those that it refers to. Throws exceptions of many kinds. */
  def parse(texts: Seq[String]): Schema = {
    // As other languages' libraries, which write what they please.
    val parser = new Schema.Parser(NameValidator.NO_VALIDATION).setValidateDefaults(false)
    texts.map(parser.parse).last
  }
}
