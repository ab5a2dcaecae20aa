package glassflow

import org.apache.spark.unsafe.types.UTF8String

/** Reads the declared fields of messages of one type, in one pass over their bytes.
  *
  * A declared name is that of a field, or a path of such names into messages and maps with texts as keys. A field that
  * a message does not have is null where that can be told from its default (proto2, `optional`, `oneof`, messages);
  * else it has its default, as in Protobuf's own libraries.
  */
final class ProtobufRecords(message: MessageType, fields: Array[JsonField], root: Node) {
  import ProtobufRecords._

  // Fields of the message that nobody reads are skipped.
  private val wanted: Array[Boolean] = message.fields.map(field => root.get(field.name) != null)
  // Of each node of the declared names: the fields of the message there that are declared.
  private val declared = new java.util.IdentityHashMap[Node, Array[(ProtobufField, Node)]]()

  /** Read a message from a position on into `values`, of the types of StrictJson. Throws Refusal. */
  def read(bytes: Array[Byte], from: Int, values: Array[Any]): Unit = {
    val in = new ProtobufInput(bytes)
    in.at = from
    val found = new Array[Any](message.fields.length)
    parse(in, message, found, wanted, 0)
    take(message, found, root, values)
    var i = 0
    while (i < fields.length) {
      if (values(i) == null && fields(i).required) throw new Refusal(s"field '${fields(i).name}' is missing or null")
      i += 1
    }
  }

  /** Give each field that is declared in a message its value. */
  private def take(kind: MessageType, found: Array[Any], names: Node, values: Array[Any]): Unit = {
    var pairs = declared.get(names)
    if (pairs == null) {
      pairs = kind.fields.map(field => field -> names.get(field.name)).filter(_._2 != null)
      declared.put(names, pairs)
    }
    pairs.foreach { case (field, node) => takeValue(field, found(field.index), node, values) }
  }

  private def takeValue(field: ProtobufField, found: Any, node: Node, values: Array[Any]): Unit = {
    val value = ProtobufValue.of(field, found)
    if (value != null) {
      node.takers.foreach { taker =>
        try values(taker.index) = value.convert(fields(taker.index).kind)
        catch { case refusal: Refusal => throw FieldSource.of(fields(taker.index), refusal.getMessage) }
      }
      if (node.hasChildren && found != null) takeNested(field, found, node, values)
    }
  }

  private def takeNested(field: ProtobufField, found: Any, names: Node, values: Array[Any]): Unit =
    (field.kind, found) match {
      case (entry: MessageType, list: java.util.ArrayList[_]) if field.isMap =>
        ProtobufValue.entries(entry, list).forEach { (key, value) =>
          val node = names.get(key)
          if (node != null) takeValue(entry.fields(1), value, node, values)
        }
      case (kind: MessageType, message: Array[Any]) if !field.isRepeated && ProtobufValue.isStruct(kind) =>
        // Objects whose fields stand in a map, or in one of several parts.
        kind.fields.foreach(part =>
          if (message(part.index) != null) takeNested(part, message(part.index), names, values)
        )
      case (kind: MessageType, message: Array[Any]) if !field.isRepeated => take(kind, message, names, values)
      case _ => ()
    }
}

object ProtobufRecords {

  /** Read the fields of a message up to the end of the input into their places.
    *
    * A value is a Long (whole numbers, booleans, enums), a Float, a Double, a UTF8String, an Array[Byte], an Array[Any]
    * (a message), or an ArrayList of these (repeated fields; the entries of maps); null where there is none.
    *
    * @param wanted
    *   by place: the fields to read; null for all
    */
  def parse(in: ProtobufInput, kind: MessageType, found: Array[Any], wanted: Array[Boolean], depth: Int): Unit = {
    requireDepth(depth)
    while (!in.isAtEnd) parseNext(in, kind, in.tag(), found, wanted, depth)
  }

  /** Read the fields of a group, up to the tag that ends the field of this number. */
  private def parseGroup(in: ProtobufInput, kind: MessageType, number: Int, found: Array[Any], depth: Int): Unit = {
    requireDepth(depth)
    val end = number << ProtobufInput.NUMBER | ProtobufInput.GROUP_END
    var tag = in.tag()
    while (tag != end) {
      parseNext(in, kind, tag, found, null, depth)
      tag = in.tag()
    }
  }

  private def requireDepth(depth: Int): Unit = if (depth > SchemaDecoder.DEEPEST)
    throw new Refusal(s"invalid Protobuf: messages more than ${SchemaDecoder.DEEPEST} deep")

  private def parseNext(
      in: ProtobufInput,
      kind: MessageType,
      tag: Int,
      found: Array[Any],
      wanted: Array[Boolean],
      depth: Int
  ): Unit = {
    val (number, wireType) = (tag >>> ProtobufInput.NUMBER, tag & ProtobufInput.WIRE_TYPE)
    val field = kind.field(number)
    if (field == null) in.skipField(number, wireType, depth)
    else if (wanted != null && !wanted(field.index)) {
      in.skipField(number, wireType, depth)
      clearOthers(kind, field, found)
    } else parseField(in, kind, field, wireType, found, depth)
  }

  private def parseField(
      in: ProtobufInput,
      message: MessageType,
      field: ProtobufField,
      wireType: Int,
      found: Array[Any],
      depth: Int
  ): Unit = {
    val i = field.index
    if (field.isRepeated) {
      if (found(i) == null) found(i) = new java.util.ArrayList[Any]()
      val list = found(i).asInstanceOf[java.util.ArrayList[Any]]
      if (wireType == ProtobufInput.DELIMITED && field.isPackable)
        within(in, in.length())(while (!in.isAtEnd) list.add(one(in, field, null, depth)))
      else {
        requireWireType(in, field, wireType)
        list.add(one(in, field, null, depth))
      }
    } else {
      requireWireType(in, field, wireType)
      clearOthers(message, field, found)
      found(i) = one(in, field, found(i), depth)
    }
  }

  /** Of a oneof the last field in a message counts. */
  private def clearOthers(message: MessageType, field: ProtobufField, found: Array[Any]): Unit =
    if (field.oneOf != null) message.othersOf(field).foreach(other => found(other) = null)

  private def requireWireType(in: ProtobufInput, field: ProtobufField, wireType: Int): Unit =
    if (field.kind.isInstanceOf[UndefinedType])
      throw new Refusal(s"the schema refers to '${field.kind.name}', which it does not define")
    else if (wireType != field.wireType)
      throw new Refusal(
        s"invalid Protobuf: '${field.name}' has wire type $wireType, and ${field.wireType} in the schema, " +
          s"before byte ${in.at}"
      )

  /** One value. before: a message that the same field had, with which a further one is merged. */
  private def one(in: ProtobufInput, field: ProtobufField, before: Any, depth: Int): Any = field.kind match {
    case message: MessageType =>
      if (before == null) in.spend(message.fields.length)
      val found = if (before == null) new Array[Any](message.fields.length) else before.asInstanceOf[Array[Any]]
      if (field.isGroup) parseGroup(in, message, field.number, found, depth + 1)
      else within(in, in.length())(parse(in, message, found, null, depth + 1))
      found
    case _: EnumType => Long.box(in.varint().toInt)
    case ScalarType(name) => scalar(in, name)
    case UndefinedType(name) => throw new Refusal(s"the schema refers to '$name', which it does not define")
  }

  private def scalar(in: ProtobufInput, name: String): Any = name match {
    case "int64" | "uint64" => Long.box(in.varint())
    case "int32" => Long.box(in.varint().toInt)
    case "uint32" => Long.box(in.varint() & 0xffffffffL)
    // Of 32 bits, the upper ones are cut off first.
    case "sint32" => Long.box(EncodedInput.signed(in.varint() & 0xffffffffL))
    case "sint64" => Long.box(EncodedInput.signed(in.varint()))
    case "fixed32" => Long.box(in.fixed32() & 0xffffffffL)
    case "sfixed32" => Long.box(in.fixed32())
    case "fixed64" | "sfixed64" => Long.box(in.fixed64())
    case "bool" => Long.box(if (in.varint() != 0) 1 else 0)
    case "float" => Float.box(java.lang.Float.intBitsToFloat(in.fixed32()))
    case "double" => Double.box(java.lang.Double.longBitsToDouble(in.fixed64()))
    case "string" =>
      val count = in.length()
      val from = in.skip(count)
      if (!Utf8.isValid(in.bytes, from, count))
        throw new Refusal(s"invalid Protobuf: a text that is not UTF-8, before byte ${in.at}")
      UTF8String.fromBytes(in.bytes, from, count)
    case "bytes" => in.take(in.length())
  }

  private def within(in: ProtobufInput, count: Int)(read: => Unit): Unit = {
    val outer = in.end
    in.end = in.at + count
    read
    in.end = outer
  }
}
