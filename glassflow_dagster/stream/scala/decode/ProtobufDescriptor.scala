package glassflow

import java.util.Base64

import scala.collection.mutable
import scala.util.Try

/** Writes compiled schemas as text: Confluent's serializers of Python and .NET register a FileDescriptorProto in
  * base64, and some registries (Apicurio) return it as it is, where Confluent's returns the .proto file.
  *
  * The numbers are those of the fields in google/protobuf/descriptor.proto. Options are left out, but for those that
  * say how records are read.
  */
object ProtobufDescriptor {

  /** The text of a schema that is compiled, or any other text as it is. Throws Refusal for a compiled one that is
    * broken, or of an edition, whose features are not text of proto2 or proto3.
    */
  def asText(schema: String): String = {
    val text = schema.trim
    if (text.isEmpty || !text.forall(isBase64)) schema
    else Try(Base64.getDecoder.decode(text)).toOption.map(compiled => file(new Fields(compiled))).getOrElse(schema)
  }

  private def isBase64(char: Char): Boolean =
    char < 128 && (Character.isLetterOrDigit(char) || char == '+' || char == '/' || char == '=')

  private def file(file: Fields): String = {
    val syntax = file.text(12).getOrElse("proto2")
    if (syntax != "proto2" && syntax != "proto3")
      throw new Refusal(s"is a compiled schema of the syntax '$syntax', which is not supported; use proto2 or proto3")
    val lines = Seq(s"""syntax = "$syntax";""") ++ file.text(2).map(name => s"package $name;") ++
      file.texts(3).map(name => s"""import "$name";""") ++
      file.messages(4).map(message(_, syntax)) ++ file.messages(5).map(enumeration)
    lines.mkString("\n")
  }

  private def message(declared: Fields, syntax: String): String = {
    val nested = declared.messages(3)
    val fields = declared.messages(2)
    val groups = fields.filter(_.number(5).contains(GROUP)).map(_.text(6).fold("")(simpleName)).toSet
    // The oneof of an optional field of proto3 is made up.
    val (inOneOf, alone) = fields.partition(field => field.number(9).isDefined && !field.number(17).contains(1L))
    val oneOfs = declared.messages(8).map(_.text(1).getOrElse(""))
    def written(field: Fields, label: String): String = {
      def isOf(group: Fields): Boolean = field.text(6).map(simpleName) == group.text(1)
      val content = if (field.number(5).contains(GROUP)) nested.find(isOf).map(body(_, syntax)) else None
      this.field(field, label, content)
    }
    val isMapEntry = declared.message(7).flatMap(_.number(7)).contains(1L)
    val lines = (if (isMapEntry) Seq("option map_entry = true;") else Seq.empty) ++
      nested.filterNot(inner => inner.text(1).exists(groups)).map(message(_, syntax)) ++
      declared.messages(4).map(enumeration) ++
      alone.map(field => written(field, labelOf(field, syntax))) ++
      oneOfs.zipWithIndex.flatMap { case (name, index) =>
        val members = inOneOf.filter(_.number(9).contains(index.toLong)).map(written(_, ""))
        if (members.isEmpty) None else Some(s"oneof $name {\n${members.mkString("\n")}\n}")
      }
    s"message ${declared.text(1).getOrElse("")} {\n${lines.mkString("\n")}\n}"
  }

  /** What is between the braces of a group. */
  private def body(group: Fields, syntax: String): String = {
    val text = message(group, syntax)
    text.substring(text.indexOf('{') + 1, text.lastIndexOf('}'))
  }

  private def labelOf(field: Fields, syntax: String): String = field.number(4) match {
    case Some(REPEATED) => "repeated "
    case Some(REQUIRED) => "required "
    case _ => if (syntax == "proto2" || field.number(17).contains(1L)) "optional " else ""
  }

  private def field(field: Fields, label: String, group: Option[String]): String = {
    val number = field.number(3).getOrElse(0L)
    val kind = field.number(5).getOrElse(0L)
    val name = if (group.isDefined) field.text(6).fold("")(simpleName) else field.text(1).getOrElse("")
    val default = field.text(7).map { value =>
      if (kind == STRING || kind == BYTES) s""" [default = "${quoted(value, isEscaped = kind == BYTES)}"]"""
      else s" [default = $value]"
    }
    // A message or an enum has its full name, with a dot before it.
    val named = SCALARS.getOrElse(kind, field.text(6).getOrElse(""))
    group.fold(s"$label$named $name = $number${default.getOrElse("")};")(content =>
      s"${label}group $name = $number {$content}"
    )
  }

  private def enumeration(declared: Fields): String = {
    val constants = declared.messages(2).map { constant =>
      s"${constant.text(1).getOrElse("")} = ${constant.number(2).getOrElse(0L).toInt};"
    }
    val alias = if (declared.message(3).flatMap(_.number(2)).contains(1L)) Seq("option allow_alias = true;") else Nil
    s"enum ${declared.text(1).getOrElse("")} {\n${(alias ++ constants).mkString("\n")}\n}"
  }

  private def simpleName(full: String): String = full.substring(full.lastIndexOf('.') + 1)

  /** A text between quotation marks; that of bytes has its escapes already. */
  private def quoted(text: String, isEscaped: Boolean): String =
    if (isEscaped) text else text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n")

  /** The fields of a message on the wire, by number. */
  private final class Fields(bytes: Array[Byte]) {
    private val numbers = mutable.HashMap.empty[Int, Long]
    private val contents = mutable.HashMap.empty[Int, Vector[Array[Byte]]]
    private val input = new ProtobufInput(bytes)
    while (!input.isAtEnd) {
      val tag = input.tag()
      val (number, wireType) = (tag >>> ProtobufInput.NUMBER, tag & ProtobufInput.WIRE_TYPE)
      wireType match {
        case ProtobufInput.VARINT => numbers.put(number, input.varint())
        case ProtobufInput.DELIMITED =>
          contents.put(number, contents.getOrElse(number, Vector.empty) :+ input.take(input.length()))
        case _ => input.skipField(number, wireType, 0)
      }
    }
    def number(field: Int): Option[Long] = numbers.get(field)
    def texts(field: Int): Vector[String] = contents.getOrElse(field, Vector.empty).map { bytes =>
      Option(Utf8.text(bytes)).getOrElse(
        throw new Refusal("is a compiled schema with a text that is not UTF-8")
      ).toString
    }
    def text(field: Int): Option[String] = texts(field).lastOption
    def messages(field: Int): Vector[Fields] = contents.getOrElse(field, Vector.empty).map(new Fields(_))
    def message(field: Int): Option[Fields] = messages(field).lastOption
  }

  private final val REQUIRED = 2L
  private final val REPEATED = 3L
  private final val STRING = 9L
  private final val GROUP = 10L
  private final val BYTES = 12L
  private val SCALARS = Map(
    1L -> "double",
    2L -> "float",
    3L -> "int64",
    4L -> "uint64",
    5L -> "int32",
    6L -> "fixed64",
    7L -> "fixed32",
    8L -> "bool",
    STRING -> "string",
    BYTES -> "bytes",
    13L -> "uint32",
    15L -> "sfixed32",
    16L -> "sfixed64",
    17L -> "sint32",
    18L -> "sint64"
  )
}
