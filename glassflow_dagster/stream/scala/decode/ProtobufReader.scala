package glassflow

import java.io.{BufferedReader, InputStreamReader, PrintStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Base64

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.unsafe.types.UTF8String

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/** Reads whole Protobuf messages and the fields of their schemas, outside of Spark: for `infer`, the list of dead
  * letters, and the watch for new fields. See stores/kafka/protobuf_values.py.
  *
  * Values are those of ProtobufDecoder, except that NaN and infinite numbers are texts. To be used by one thread.
  */
final class ProtobufReader {
  import ProtobufReader._

  private val json = new ObjectMapper()
  private val schemas = mutable.HashMap.empty[String, ProtobufTypes]

  /** Answer a request; both are JSON objects.
    *
    *   - {"schema": id, "texts": [...]} adds a schema: its own text is the last, after those that it refers to. {}
    *   - {"schema": id, "message_type": name or null, "value": base64, "has_path": boolean} reads a record's message,
    *     with the message's indexes before it or without. {"message": full name, "record": {...}}
    *   - {"schema": id, "message": full name} describes a message. {"messages": {name: [field, ...]}}, the messages
    *     within it, too; see `describe`
    *
    * Of an error the answer is {"problem": text}.
    */
  def answer(request: String): String = {
    val asked = json.readTree(request)
    val id = asked.get("schema").asText
    try {
      if (asked.has("texts")) {
        schemas.put(id, new ProtobufTypes(asked.get("texts").elements.asScala.map(_.asText).toSeq))
        "{}"
      } else if (asked.has("value")) read(schemas(id), asked)
      else json.writeValueAsString(describe(schemas(id).message(asked.get("message").asText)))
    } catch {
      case refusal: Refusal => problem(refusal.getMessage)
      // As in SchemaDecoder: no value may end what reads many.
      case NonFatal(error) => problem(s"cannot be decoded: $error")
    }
  }

  private def problem(text: String): String = json.writeValueAsString(json.createObjectNode.put("problem", text))

  private def read(types: ProtobufTypes, asked: JsonNode): String = {
    val bytes = Base64.getDecoder.decode(asked.get("value").asText)
    val path = if (asked.get("has_path").asBoolean) ProtobufDecoder.messagePath(bytes, 0) else ProtobufDecoder.NO_PATH
    val name = asked.get("message_type").asText(null)
    val message = if (name == null) types.message(path.indexes) else types.message(name)
    val in = new ProtobufInput(bytes)
    in.at = path.end
    val found = new Array[Any](message.fields.length)
    // Fields of types that the schema does not define cannot be read, and a pipeline skips them.
    ProtobufRecords.parse(in, message, found, message.fields.map(isDefined), 0)
    val out = new JsonText(quotesNaN = true)
    out.add("{\"message\":")
    out.quote(UTF8String.fromString(message.name))
    out.add(",\"record\":")
    ProtobufValue.writeRecord(message, found, out)
    out.add('}')
    out.toText.toString
  }

  /** The fields of a message and of those within it: {"name", "type", "label"}, and of a map the type of its "key".
    *
    * type: a scalar's name, "enum", the full name of one of Google's or Confluent's messages that stand for another
    * value, or {"message": full name}. label: repeated, map, optional (may be null), or "".
    */
  private def describe(message: MessageType): ObjectNode = {
    val answer = json.createObjectNode()
    val messages = answer.putObject("messages")
    val waiting = mutable.Queue(message)
    while (waiting.nonEmpty) {
      val next = waiting.dequeue()
      if (!messages.has(next.name)) {
        val fields = messages.putArray(next.name)
        next.fields.filter(isDefined).foreach { field =>
          val value = if (field.isMap) field.kind.asInstanceOf[MessageType].fields(1).kind else field.kind
          fields.add(described(field, value))
          value match {
            case inner: MessageType if !ProtobufValue.isSpecial(inner) => waiting.enqueue(inner)
            case _ => ()
          }
        }
      }
    }
    answer
  }

  private def described(field: ProtobufField, value: ProtobufType): ObjectNode = {
    val node = json.createObjectNode().put("name", field.name)
    value match {
      case inner: MessageType if !ProtobufValue.isSpecial(inner) => node.putObject("type").put("message", inner.name)
      case _: EnumType => node.put("type", "enum")
      case other => node.put("type", other.name)
    }
    if (field.isMap) node.put("key", field.kind.asInstanceOf[MessageType].fields(0).kind.name)
    node.put("label", labelOf(field))
  }
}

object ProtobufReader {

  /** Answer a request on each line of the standard input with a line, until it ends. */
  def main(arguments: Array[String]): Unit = {
    val reader = new ProtobufReader
    val requests = new BufferedReader(new InputStreamReader(System.in, UTF_8))
    val answers = new PrintStream(System.out, true, UTF_8)
    Iterator.continually(requests.readLine()).takeWhile(_ != null).foreach(line => answers.println(reader.answer(line)))
  }

  private def labelOf(field: ProtobufField): String =
    if (field.isMap) "map"
    else if (field.isRepeated) "repeated"
    else if (field.hasPresence && !field.isRequired && field.default == null) "optional"
    else ""

  private def isDefined(field: ProtobufField): Boolean = field.kind match {
    case _: UndefinedType => false
    case entry: MessageType if field.isMap => !entry.fields(1).kind.isInstanceOf[UndefinedType]
    case _ => true
  }
}
