package glassflow

import java.math.BigDecimal

import org.apache.avro.Schema
import org.apache.avro.generic.{GenericData, GenericDatumWriter}
import org.apache.avro.io.EncoderFactory
import org.apache.spark.unsafe.types.UTF8String

import scala.util.control.NonFatal

/** Reads the declared fields of the records of one writer's schema, in one pass over their bytes.
  *
  * A declared name is that of a field, or a path of such names into records and maps. A field of the record itself that
  * the writer's schema does not have is looked for by the aliases that the reader's schema gives it, and else has the
  * default of that schema (Avro specification, "Schema resolution").
  *
  * To be used by one thread.
  */
final class AvroRecords(writer: Schema, reader: Option[Schema], fields: Array[JsonField], root: Node) {
  private val record = AvroType(writer)
  private val value = new AvroValue
  private val isFound = new Array[Boolean](fields.length)
  private val renamed: Map[String, String] = reader.fold(Map.empty[String, String])(AvroRecords.aliases(_, writer))
  private val defaults: Map[Int, Any] = reader.fold(Map.empty[Int, Any])(AvroRecords.defaults(_, fields))

  /** Read a record into `values`, of the types of StrictJson. Throws Refusal. */
  def read(in: AvroInput, values: Array[Any]): Unit = {
    java.util.Arrays.fill(isFound, false)
    val top = record.branch(in)
    if (!top.isObject || top.values != null) throw new Refusal(s"not a record but ${top.name}")
    readMembers(in, top, root, values, 0)
    if (in.left > 0) throw new Refusal(s"invalid Avro: ${in.left} bytes follow the record")
    complete(values)
  }

  private def readMembers(in: AvroInput, record: AvroType, names: Node, values: Array[Any], depth: Int): Unit = {
    val members = record.members
    var i = 0
    while (i < members.length) {
      val member = members(i)
      val wanted = names.get(if (depth == 0) renamed.getOrElse(member.name, member.name) else member.name)
      if (wanted == null) member.value.skip(in, depth + 1) else readMember(in, member.value, wanted, values, depth + 1)
      i += 1
    }
  }

  private def readEntries(in: AvroInput, map: AvroType, names: Node, values: Array[Any], depth: Int): Unit =
    in.items {
      val wanted = names.get(in.text().toString)
      if (wanted == null) map.values.skip(in, depth + 1) else readMember(in, map.values, wanted, values, depth + 1)
    }

  /** Read a value for the field that takes it, and for those that are nested in it. */
  private def readMember(in: AvroInput, value: AvroType, wanted: Node, values: Array[Any], depth: Int): Unit = {
    val found = value.branch(in)
    val start = in.at
    wanted.takers.foreach { taker =>
      in.at = start
      take(in, found, taker.index, values, depth)
    }
    if (wanted.hasChildren && found.isObject) {
      in.at = start
      if (depth > SchemaDecoder.DEEPEST) throw new Refusal(s"a path of more than ${SchemaDecoder.DEEPEST} names")
      if (found.values != null) readEntries(in, found, wanted, values, depth)
      else readMembers(in, found, wanted, values, depth)
    } else if (wanted.takers.isEmpty) found.skip(in, depth)
  }

  private def take(in: AvroInput, found: AvroType, index: Int, values: Array[Any], depth: Int): Unit = {
    val field = fields(index)
    if (isFound(index)) throw FieldSource.of(field, "is given twice")
    isFound(index) = true
    try {
      values(index) = if (found.isNull) null else FieldSource.convert(value.at(in, found, depth), field.kind)
    } catch { case refusal: Refusal => throw FieldSource.of(field, refusal.getMessage) }
    if (found.isNull && field.required) throw new Refusal(s"field '${field.name}' is null")
  }

  /** Give fields that are not in the record their defaults. */
  private def complete(values: Array[Any]): Unit = {
    var i = 0
    while (i < fields.length) {
      if (!isFound(i)) {
        val value = defaults.getOrElse(i, null)
        if (value == null && fields(i).required) throw new Refusal(s"field '${fields(i).name}' is missing")
        values(i) = value
      }
      i += 1
    }
  }
}

/** The value that an input is at. To be used by one thread. */
final class AvroValue extends FieldSource {
  private val out = new JsonText
  private var in: AvroInput = _
  private var found: AvroType = _
  private var depth = 0

  def at(in: AvroInput, found: AvroType, depth: Int): AvroValue = {
    this.in = in
    this.found = found
    this.depth = depth
    this
  }

  override def text: UTF8String = found.text(in)
  override def truth: Boolean = found.truth(in)
  override def real: Double = found.real(in)
  override def number: BigDecimal = found.number(in)
  override def isLong: Boolean = found.isLong
  override def long: Long = found.long(in)
  override def isArray: Boolean = found.isArray
  override def isObject: Boolean = found.isObject
  override def json: UTF8String = {
    out.clear()
    found.json(in, out, depth)
    out.toText
  }
  override def refusal(wanted: String): Refusal = found.refusal(wanted)
}

object AvroRecords {

  /** Name in the writer's schema -> name in the reader's, of fields that the reader knows by an alias. */
  private def aliases(reader: Schema, writer: Schema): Map[String, String] =
    (for {
      field <- fieldsOf(reader) if !fieldsOf(writer).exists(_.name == field.name)
      alias <- field.aliases.toArray(Array.empty[String]) if fieldsOf(writer).exists(_.name == alias)
    } yield alias -> field.name).toMap

  /** Index of a declared field -> its default in the reader's schema. Throws Refusal for one that does not fit. */
  def defaults(reader: Schema, fields: Array[JsonField]): Map[Int, Any] =
    (for {
      (field, index) <- fields.zipWithIndex
      declared <- fieldsOf(reader).find(_.name == field.name) if declared.hasDefaultValue
    } yield index -> default(declared, field)).toMap

  private def default(declared: Schema.Field, field: JsonField): Any =
    try {
      // As a writer would encode it, so that it becomes what a written value would.
      val out = new java.io.ByteArrayOutputStream
      val encoder = EncoderFactory.get.directBinaryEncoder(out, null)
      val written = GenericData.get.getDefaultValue(declared)
      new GenericDatumWriter[Any](declared.schema).write(written, encoder)
      val in = new AvroInput
      in.open(out.toByteArray, 0)
      val found = AvroType(declared.schema).branch(in)
      if (found.isNull) null else FieldSource.convert(new AvroValue().at(in, found, 0), field.kind)
    } catch {
      case refusal: Refusal => throw new Refusal(s"the default of field '${field.name}': ${refusal.getMessage}")
      case NonFatal(error) => throw new Refusal(s"the default of field '${field.name}' does not fit its type: $error")
    }

  private def fieldsOf(schema: Schema): Seq[Schema.Field] =
    if (schema.getType == Schema.Type.RECORD) schema.getFields.toArray(Array.empty[Schema.Field]).toSeq else Nil
}
