package glassflow

import com.fasterxml.jackson.databind.ObjectMapper

import scala.util.control.NonFatal

/** Tells what is wrong with a schema that stands in a definition. */
object SchemaCheck {

  /** What is wrong, or null. messageType: the name of a message; null for none. fields: as of SchemaDecoder, where the
    * schema is the reader's; null where it is the writer's, whose defaults are not used.
    */
  def problem(format: String, text: String, messageType: String, fields: String): String =
    try {
      format match {
        case "avro" =>
          val schema = AvroDecoder.parse(Seq(text))
          AvroType(schema)
          if (fields != null)
            AvroRecords.defaults(schema, StrictJson.readFields(new ObjectMapper().readTree(fields)))
          null
        case "protobuf" =>
          val types = new ProtobufTypes(Seq(text))
          if (messageType == null) types.message(Seq(0)) else types.message(messageType)
          types.undefined.headOption.map(name => s"it refers to '$name', which it does not define").orNull
      }
    } catch {
      case refusal: Refusal => refusal.getMessage
      case NonFatal(error) => s"is no schema of the format $format: ${error.getMessage}"
    }
}
