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
  // Also the reasons why schemas are invalid.
  @transient private lazy val bySchemaId = new java.util.HashMap[String, Either[Refusal, AvroRecords]]()
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

  private def of(bytes: Array[Byte], length: Int): AvroRecords = {
    if (lastId == null || lastId.length != length || !java.util.Arrays.equals(bytes, 0, length, lastId, 0, length)) {
      val id = java.util.Arrays.copyOf(bytes, length)
      val text = SchemaId.text(id)
      var found = bySchemaId.get(text)
      if (found == null) {
        found = load(id, text)
        bySchemaId.put(text, found)
      }
      last = found.fold(refusal => throw refusal, identity)
      lastId = id
    }
    last
  }

  private def load(id: Array[Byte], text: String): Either[Refusal, AvroRecords] = {
    val texts = registered(id)
    try Right(new AvroRecords(parse(texts), reader, fields, root))
    catch { case NonFatal(error) => Left(new Refusal(s"schema $text is invalid: ${error.getMessage}")) }
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
