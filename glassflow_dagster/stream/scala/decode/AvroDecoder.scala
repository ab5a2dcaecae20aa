package glassflow

import org.apache.avro.{NameValidator, Schema}

import scala.util.control.NonFatal

/** Decodes Avro records to the declared fields, as strictly as StrictJson decodes JSON, and to the same columns.
  *
  * @param spec
  *   see SchemaDecoder; the schema that is given is the writer's without a registry, and with one the reader's
  */
class AvroDecoder(spec: String) extends SchemaDecoder(spec, "AVRO") {
  import AvroDecoder._

  @transient private lazy val in = new AvroInput
  @transient private lazy val reader: Option[Schema] = Option(given).map(text => parse(Seq(text)))
  @transient private lazy val ofGiven = new AvroRecords(reader.get, None, fields, root)
  @transient private lazy val ofRegistered = new OfRegistered(texts =>
    try new AvroRecords(parse(texts), reader, fields, root)
    catch { case NonFatal(error) => throw new Refusal(s"is invalid: ${error.getMessage}") }
  )
  @transient private lazy val last = new LastStart[AvroRecords]

  override protected def read(
      value: Array[Byte],
      start: Int,
      id: Array[Byte],
      idEnd: Int,
      values: Array[Any]
  ): Unit = {
    if (registry != null && !last.begins(id)) last.set(id, idEnd, ofRegistered.of(id))
    in.open(value, start)
    (if (registry == null) ofGiven else last.reads).read(in, values)
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
