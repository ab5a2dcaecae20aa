package glassflow

import java.math.BigInteger
import java.nio.charset.StandardCharsets.ISO_8859_1
import java.util.Locale

import com.squareup.wire.schema.{Field, Location}
import com.squareup.wire.schema.internal.parser.{
  EnumElement,
  FieldElement,
  GroupElement,
  MessageElement,
  ProtoFileElement,
  ProtoParser,
  TypeElement
}

import org.apache.spark.unsafe.types.UTF8String

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/** A type of Protobuf's: how its values are on the wire. */
sealed trait ProtobufType {
  def name: String

  /** The wire type of one value. */
  def wireType: Int
}

/** double, float, int32 ... string and bytes. */
final case class ScalarType(name: String) extends ProtobufType {
  override val wireType: Int = name match {
    case "double" | "fixed64" | "sfixed64" => ProtobufInput.FIXED64
    case "float" | "fixed32" | "sfixed32" => ProtobufInput.FIXED32
    case "string" | "bytes" => ProtobufInput.DELIMITED
    case _ => ProtobufInput.VARINT
  }
}

/** names: by number. numbers: by name. first: the number that stands first. */
final class EnumType(val name: String, val names: Map[Int, String], val numbers: Map[String, Int], val first: Int)
    extends ProtobufType {
  override def wireType: Int = ProtobufInput.VARINT
}

/** A type that the schema does not define. Its fields can be skipped, but not read. */
final case class UndefinedType(name: String) extends ProtobufType {
  override def wireType: Int = -1
}

final class MessageType(val name: String) extends ProtobufType {
  override def wireType: Int = ProtobufInput.DELIMITED

  /** In the order of the schema; the place of a field is its index in the values of a message. */
  var fields: Array[ProtobufField] = Array.empty

  /** Whether it is the entry of a map: a field that repeats it is that map. */
  var isMapEntry = false

  /** Whether it is one of Google's and Confluent's own. */
  var isSpecial = false
  private var byNumber: Map[Int, ProtobufField] = Map.empty

  // By place: the places of the other fields of the same oneof.
  private var others: Array[Array[Int]] = Array.empty

  def set(declared: Array[ProtobufField]): Unit = {
    fields = declared
    byNumber = declared.map(field => field.number -> field).toMap
    val oneOfs = declared.filter(_.oneOf != null).groupBy(_.oneOf).view.mapValues(_.map(_.index)).toMap
    others = declared.map(field => oneOfs.getOrElse(field.oneOf, Array.empty[Int]).filter(_ != field.index))
  }
  def othersOf(field: ProtobufField): Array[Int] = others(field.index)
  def field(number: Int): ProtobufField = byNumber.getOrElse(number, null)
}

/** A field of a message.
  *
  * @param hasPresence
  *   whether a message without the field differs from one with its default (proto2, `optional`, `oneof`, messages)
  * @param isRequired
  *   whether proto2's schema says that each message has the field
  * @param isGroup
  *   whether its messages are groups of proto2: between two tags, and not behind their length
  * @param default
  *   proto2's own default, as ProtobufRecords.parse would read it; null for the type's
  * @param oneOf
  *   the name of the oneof that it belongs to; null for none. Of these the last one in a message counts.
  */
final class ProtobufField(
    val index: Int,
    val number: Int,
    val name: String,
    val kind: ProtobufType,
    val isRepeated: Boolean,
    val isMap: Boolean,
    val hasPresence: Boolean,
    val isRequired: Boolean,
    val isGroup: Boolean,
    val default: Any,
    val oneOf: String
) {

  /** The wire type of one value. */
  val wireType: Int = if (isGroup) ProtobufInput.GROUP else kind.wireType

  /** Whether several values may stand behind one length. */
  val isPackable: Boolean = wireType match {
    case ProtobufInput.VARINT | ProtobufInput.FIXED32 | ProtobufInput.FIXED64 => true
    case _ => false
  }
  val quoted: Array[Byte] = JsonText.quoted(name)
}

/** The messages of .proto files. Throws Refusal for files that are none, or refer to types that nobody defines. */
final class ProtobufTypes(texts: Seq[String]) {
  import ProtobufTypes._

  private val files: Seq[ProtoFileElement] = texts.map(parse)
  private val declared = mutable.LinkedHashMap.empty[String, (TypeElement, ProtoFileElement)]
  private val built = mutable.HashMap.empty[String, ProtobufType]
  files.foreach(file => file.getTypes.forEach(declare(_, packageOf(file), file)))

  /** The names of types that are referred to in messages that were built, and not defined. */
  val undefined = mutable.LinkedHashSet.empty[String]

  /** A message by its full or, where only one has it, simple name. */
  def message(name: String): MessageType = {
    val full = name.stripPrefix(".")
    val found = declared.keys.filter(key => key == full || key.endsWith(s".$full")).toSeq
    val exact = found.find(_ == full).orElse(found match {
      case Seq(one) => Some(one)
      case _ => None
    })
    exact.map(build) match {
      case Some(message: MessageType) => message
      case _ => throw new Refusal(s"no message '$name' in the schema")
    }
  }

  /** The message that a path of indexes leads to: the first among those of the last file, then among its own. */
  def message(path: Seq[Int]): MessageType = {
    val file = files.last
    var prefix = packageOf(file)
    var among = file.getTypes.asScala.collect { case message: MessageElement => message }.toSeq
    var name = ""
    path.zipWithIndex.foreach { case (index, depth) =>
      if (index < 0 || index >= among.size) throw new Refusal(s"no message ${path.mkString(".")} in the schema")
      val message = among(index)
      name = join(prefix, message.getName)
      prefix = name
      among = message.getNestedTypes.asScala.collect { case nested: MessageElement => nested }.toSeq
      // Some languages count the entries of maps, and groups, among the nested messages, and others do not.
      if (depth < path.length - 1 && hasHiddenMessages(message))
        throw new Refusal(
          s"the record's message is nested in $name, which has maps or groups: its index has no one meaning; " +
            "set message_type"
        )
    }
    message(name)
  }

  private def declare(element: TypeElement, scope: String, file: ProtoFileElement): Unit = {
    val name = join(scope, element.getName)
    declared.put(name, (element, file))
    element.getNestedTypes.forEach(declare(_, name, file))
    element match {
      case message: MessageElement => groupsOf(message).foreach { case (group, _) =>
          declare(messageOf(group), name, file)
        }
      case _ => ()
    }
  }

  private def build(name: String): ProtobufType = built.getOrElse(
    name,
    declared(name) match {
      case (enumeration: EnumElement, _) =>
        val constants = enumeration.getConstants.asScala.toSeq
        // Of several names for one number, the first counts, as in Protobuf's own JSON.
        val names = constants.reverse.map(constant => constant.getTag -> constant.getName).toMap
        val numbers = constants.map(constant => constant.getName -> constant.getTag).toMap
        val made = new EnumType(name, names, numbers, constants.headOption.fold(0)(_.getTag))
        built.put(name, made)
        made
      case (message: MessageElement, file) =>
        val made = new MessageType(name)
        made.isMapEntry = isMapEntry(message)
        built.put(name, made)
        // As where a map is written as one: an entry without its key or its value has the default.
        val fields = message.getFields.asScala.map(field => if (made.isMapEntry) withoutLabel(field) else field)
        val plain = fields.map((_, null, false))
        val ofOneOfs = message.getOneOfs.asScala.flatMap(one => one.getFields.asScala.map((_, one.getName, false)))
        val ofGroups = groupsOf(message).map { case (group, oneOf) => (groupField(group), oneOf, true) }
        val all = (plain ++ ofOneOfs ++ ofGroups).toSeq
        requireUnique(name, all.map { case (field, _, _) => field })
        made.set(all.zipWithIndex.map { case ((field, oneOf, isGroup), index) =>
          fieldOf(field, oneOf, isGroup, index, name, isProto3(file) || made.isMapEntry)
        }.toArray)
        made.isSpecial = SPECIAL_SHAPES.get(name).contains(shapeOf(message))
        made
      case (other, _) => throw new Refusal(s"the schema has ${other.getName}, which is neither a message nor an enum")
    }
  )

  /** The parser lets two fields have one number, as no compiler does. Throws Refusal. */
  private def requireUnique(message: String, fields: Seq[FieldElement]): Unit =
    fields.groupBy(_.getTag).values.foreach { same =>
      if (same.size > 1)
        throw new Refusal(
          s"'${same(0).getName}' and '${same(1).getName}' of $message have the number ${same.head.getTag}"
        )
    }

  private def fieldOf(
      field: FieldElement,
      oneOf: String,
      isGroup: Boolean,
      index: Int,
      scope: String,
      isProto3: Boolean
  ): ProtobufField = {
    val isWrittenAsMap = field.getType.startsWith("map<")
    val kind = if (isWrittenAsMap) mapEntry(field, scope) else typeOf(field.getType, scope)
    val isMap = isWrittenAsMap || (kind match {
      case message: MessageType => message.isMapEntry
      case _ => false
    })
    val isRepeated = isMap || field.getLabel == Field.Label.REPEATED
    val hasPresence = !isRepeated &&
      (!isProto3 || oneOf != null || field.getLabel == Field.Label.OPTIONAL || kind.isInstanceOf[MessageType])
    val default = if (field.getDefaultValue == null) null else defaultOf(field, kind)
    val isRequired = field.getLabel == Field.Label.REQUIRED
    val (number, name) = (field.getTag, field.getName)
    new ProtobufField(index, number, name, kind, isRepeated, isMap, hasPresence, isRequired, isGroup, default, oneOf)
  }

  /** The message with the key and the value of a map's entry. */
  private def mapEntry(field: FieldElement, scope: String): MessageType = {
    val Array(key, value) = field.getType.stripPrefix("map<").stripSuffix(">").split(",", 2).map(_.trim)
    val entry = new MessageType(s"${field.getName}Entry")
    entry.set(Array(
      entryField(0, "key", typeOf(key, scope)),
      entryField(1, "value", typeOf(value, scope))
    ))
    entry
  }

  private def entryField(index: Int, name: String, kind: ProtobufType): ProtobufField =
    new ProtobufField(index, index + 1, name, kind, false, false, false, false, false, null, null)

  /** A type by its name as it is written in a scope: looked for there, and then in each scope around it. */
  private def typeOf(written: String, scope: String): ProtobufType =
    if (SCALARS(written)) ScalarType(written)
    else if (written.startsWith(".")) known(written.drop(1), written)
    else {
      val scopes =
        Iterator.iterate(scope)(_.split('.').dropRight(1).mkString(".")).takeWhile(_.nonEmpty) ++ Iterator("")
      val names = scopes.map(join(_, written)).toSeq
      known(names.find(name => declared.contains(name) || WELL_KNOWN.contains(name)).getOrElse(written), written)
    }

  private def known(name: String, written: String): ProtobufType =
    if (declared.contains(name)) build(name)
    else if (WELL_KNOWN.contains(name)) WELL_KNOWN_TYPES(name)
    else {
      undefined += written
      UndefinedType(written)
    }
}

object ProtobufTypes {
  private val SCALARS = Set(
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes"
  )

  private def parse(text: String): ProtoFileElement =
    try
      ProtoParser.Companion.parse(
        Location.get("schema.proto"),
        PLUS_IN_DEFAULT.replaceAllIn(ProtobufDescriptor.asText(text), "$1")
      )
    catch {
      case refusal: Refusal => throw refusal
      case NonFatal(error) =>
        throw new Refusal(s"is no .proto file: ${String.valueOf(error.getMessage).linesIterator.mkString(" ")}")
    }

  private def packageOf(file: ProtoFileElement): String = Option(file.getPackageName).getOrElse("")
  private def isProto3(file: ProtoFileElement): Boolean = String.valueOf(file.getSyntax) == "proto3"
  private def join(scope: String, name: String): String = if (scope.isEmpty) name else s"$scope.$name"

  /** The groups of proto2 in a message, each with the name of the oneof that it belongs to; null for none. */
  private def groupsOf(message: MessageElement): Seq[(GroupElement, String)] =
    (message.getGroups.asScala.map((_, null)) ++
      message.getOneOfs.asScala.flatMap(one => one.getGroups.asScala.map((_, one.getName)))).toSeq

  /** A group declares a message and a field of it, whose name is in lower case. */
  private def messageOf(group: GroupElement): MessageElement = {
    def none[T] = java.util.List.of[T]()
    val fields = group.getFields
    new MessageElement(group.getLocation, group.getName, "", none, none, none, fields, none, none, none, none)
  }

  private def groupField(group: GroupElement): FieldElement = {
    val name = group.getName.toLowerCase(Locale.ROOT)
    val (location, label, tag) = (group.getLocation, group.getLabel, group.getTag)
    new FieldElement(location, label, group.getName, name, null, null, tag, "", java.util.List.of())
  }

  private def withoutLabel(field: FieldElement): FieldElement =
    new FieldElement(
      field.getLocation,
      null,
      field.getType,
      field.getName,
      field.getDefaultValue,
      field.getJsonName,
      field.getTag,
      field.getDocumentation,
      field.getOptions
    )

  private def hasHiddenMessages(message: MessageElement): Boolean =
    message.getFields.asScala.exists(_.getType.startsWith("map<")) || groupsOf(message).nonEmpty ||
      message.getNestedTypes.asScala.exists { case nested: MessageElement => isMapEntry(nested); case _ => false }

  private def isMapEntry(message: MessageElement): Boolean =
    message.getOptions.asScala.exists(option =>
      option.getName == "map_entry" && String.valueOf(option.getValue) == "true"
    )

  // The parser takes no plus sign in the exponent of a default, as protoc writes one.
  private val PLUS_IN_DEFAULT = """(\bdefault\s*=\s*-?[\d.]+[eE])\+""".r

  // Messages that files import without bringing them along, as every compiler knows them. Their JSON is their own, see
  // ProtobufJson.
  private val WELL_KNOWN_FILES = Seq(
    """syntax = "proto3"; package google.protobuf;
      |message Timestamp { int64 seconds = 1; int32 nanos = 2; }
      |message Duration { int64 seconds = 1; int32 nanos = 2; }
      |message Any { string type_url = 1; bytes value = 2; }
      |message Empty {}
      |message FieldMask { repeated string paths = 1; }
      |message Struct { map<string, Value> fields = 1; }
      |message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3;
      |  bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }
      |enum NullValue { NULL_VALUE = 0; }
      |message ListValue { repeated Value values = 1; }
      |message DoubleValue { double value = 1; }
      |message FloatValue { float value = 1; }
      |message Int64Value { int64 value = 1; }
      |message UInt64Value { uint64 value = 1; }
      |message Int32Value { int32 value = 1; }
      |message UInt32Value { uint32 value = 1; }
      |message BoolValue { bool value = 1; }
      |message StringValue { string value = 1; }
      |message BytesValue { bytes value = 1; }""".stripMargin,
    """syntax = "proto3"; package confluent.type;
      |message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""".stripMargin,
    """syntax = "proto3"; package google.type;
      |message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
      |message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
      |message LatLng { double latitude = 1; double longitude = 2; }
      |message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }""".stripMargin
  )
  private val WELL_KNOWN: Map[String, TypeElement] = WELL_KNOWN_FILES.map(parse).flatMap(file =>
    file.getTypes.asScala.map(element => join(packageOf(file), element.getName) -> element)
  ).toMap
  // All of them at once, as the tasks of a JVM share them.
  private lazy val WELL_KNOWN_TYPES: Map[String, ProtobufType] = {
    val types = new ProtobufTypes(WELL_KNOWN_FILES)
    WELL_KNOWN.map { case (name, _) => name -> types.build(name) }
  }

  /** The fields of a message, to tell Google's own from others of the same name. */
  private def shapeOf(message: MessageElement): Set[(Int, String)] =
    (message.getFields.asScala ++ message.getOneOfs.asScala.flatMap(_.getFields.asScala))
      .map(field => field.getTag -> field.getType.split('.').last).toSet

  private val SPECIAL_SHAPES: Map[String, Set[(Int, String)]] =
    WELL_KNOWN.collect { case (name, message: MessageElement) => name -> shapeOf(message) }

  /** The default that proto2's schema writes for a field. Throws Refusal. */
  private def defaultOf(field: FieldElement, kind: ProtobufType): Any = {
    val written = field.getDefaultValue
    try
      kind match {
        case ScalarType("string") => UTF8String.fromString(written)
        case ScalarType("bytes") => written.getBytes(ISO_8859_1)
        case ScalarType("double") => Double.box(realOf(written))
        case ScalarType("float") => Float.box(realOf(written).toFloat)
        case ScalarType("bool") => Long.box(if (written.toBoolean) 1 else 0)
        case enumeration: EnumType => Long.box(enumeration.numbers(written).toLong)
        case _: ScalarType => Long.box(wholeOf(written).longValue)
        case _ => null
      }
    catch {
      case _: IllegalArgumentException | _: NoSuchElementException =>
        throw new Refusal(s"field '${field.getName}' has the default $written, which is no value of its type")
    }
  }

  private def realOf(written: String): Double = written match {
    case "inf" => Double.PositiveInfinity
    case "-inf" => Double.NegativeInfinity
    case "nan" | "-nan" => Double.NaN
    case number => number.toDouble
  }

  /** As in C: 0x10 is 16, and 010 is 8. */
  private def wholeOf(written: String): BigInteger = {
    val (sign, digits) = if (written.startsWith("-")) ("-", written.drop(1)) else ("", written)
    if (digits.toLowerCase(Locale.ROOT).startsWith("0x")) new BigInteger(sign + digits.drop(2), 16)
    else if (digits.length > 1 && digits.startsWith("0")) new BigInteger(sign + digits, 8)
    else new BigInteger(written)
  }
}
