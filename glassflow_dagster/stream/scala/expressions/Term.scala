package glassflow

import java.math.BigInteger

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.{StringType, LongType, DoubleType, BooleanType, TimestampType, DataType, DecimalType}
import org.apache.spark.unsafe.types.UTF8String

/** What a program is evaluated for: the fields of one record, and what was computed of them so far. To be used by one
  * thread, for one record after the other.
  *
  * @param fields
  *   how many fields the program reads
  * @param kept
  *   how many values it keeps, see Kept
  */
final class Evaluation(fields: Int, kept: Int) {
  var struct: InternalRow = _
  var computed: InternalRow = _
  // UNKNOWN until they are computed: the values of fields that are JSON, by the number of the field, and those of terms
  // that occur several times.
  val opened = new Array[Any](fields)
  val values = new Array[Any](kept)
  // What `#` stands for in each predicate that is being evaluated, the innermost last.
  private val elements = new Array[Any](Evaluation.MOST_PREDICATES)
  private var depth = 0

  def begin(struct: InternalRow, computed: InternalRow): Unit = {
    this.struct = struct
    this.computed = computed
    depth = 0
    java.util.Arrays.fill(opened.asInstanceOf[Array[AnyRef]], Evaluation.UNKNOWN)
    java.util.Arrays.fill(values.asInstanceOf[Array[AnyRef]], Evaluation.UNKNOWN)
  }

  /** What `#` stands for. */
  def element: Any = elements(depth - 1)

  /** Evaluate a term for an element of a list. */
  def ofElement[T](element: Any)(evaluate: => T): T = {
    elements(depth) = element
    depth += 1
    try evaluate
    finally depth -= 1
  }
}

object Evaluation {
  val UNKNOWN = new Object

  // How deep predicates may be in each other: the limit of definition/expressions/check.py.
  private final val MOST_PREDICATES = 4
}

/** A part of an expression, as definition/expressions/check.py has checked it.
  *
  * A term without a value for a record throws Refusal, whose text begins with the source of the operation that failed,
  * like `a / b: division by zero`. Operands are evaluated from the left, and only where they count.
  */
abstract class Term {

  /** The kind of its values, and its text in the expression. */
  def kind: String
  def source: String

  /** Its value, as `Values` describes them; null for nil. */
  def value(e: Evaluation): Any

  final def fail(problem: String): Nothing = throw new Refusal(s"$source: $problem")

  // The value as an operand of another term, which the message of a failure quotes.

  final def notNil(e: Evaluation, of: Term): Any = {
    val found = value(e)
    if (found == null) of.fail(s"$source is nil")
    found
  }

  final def text(e: Evaluation, of: Term): UTF8String = notNil(e, of) match {
    case text: UTF8String => text
    case _ => of.fail(s"$source is not a string")
  }

  final def truth(e: Evaluation, of: Term): Boolean = notNil(e, of) match {
    case truth: java.lang.Boolean => truth
    case _ => of.fail(s"$source is not a bool")
  }

  /** A number of any type. */
  final def number(e: Evaluation, of: Term): Any = {
    val found = notNil(e, of)
    if (Values.isNumber(found)) found else of.fail(s"$source is not a number")
  }

  final def double(e: Evaluation, of: Term): Double = Values.double(number(e, of))

  /** A whole number of 64 bits; a larger one is a failure. */
  final def long(e: Evaluation, of: Term): Long = notNil(e, of) match {
    case number: java.lang.Long => number
    case number: BigInteger if number.bitLength < 64 => number.longValue
    case _: BigInteger => of.fail("a number exceeds 64 bits")
    case _ => of.fail(s"$source is not a whole number")
  }

  final def list(e: Evaluation, of: Term): ListValue = notNil(e, of) match {
    case list: ListValue => list
    case _ => of.fail(s"$source is not an array")
  }

  /** Its value; NaN and infinity, which JSON cannot write, are a failure. */
  final def finite(e: Evaluation): Any = value(e) match {
    case number: java.lang.Double if !Values.isFinite(number) => fail(Term.NOT_FINITE)
    case other => other
  }
}

object Term {
  final val NOT_FINITE = "the result is not a finite number"
  final val OVERFLOW = "the result exceeds 64 bits"
}

/** A text, number, bool or nil in the expression. */
final class LiteralTerm(val kind: String, val source: String, literal: Any) extends Term {
  override def value(e: Evaluation): Any = literal
}

/** A field of the record, or the time of its batch. Each type has a class of its own, which Java calls directly. */
abstract class FieldTerm(val kind: String, val source: String, field: ProgramField) extends Term {
  private val (isInStruct, position) = (field.isInStruct, field.position)

  protected def read(row: InternalRow, position: Int): Any

  override def value(e: Evaluation): Any = passedOn(e)

  /** The field as the record has it: JSON is not opened. */
  final def passedOn(e: Evaluation): Any = {
    val row = if (isInStruct) e.struct else e.computed
    if (row.isNullAt(position)) null else read(row, position)
  }
}

final class LongField(kind: String, source: String, field: ProgramField) extends FieldTerm(kind, source, field) {
  override protected def read(row: InternalRow, position: Int): Any = row.getLong(position)
}

final class UnsignedField(kind: String, source: String, field: ProgramField) extends FieldTerm(kind, source, field) {
  override protected def read(row: InternalRow, position: Int): Any =
    row.getDecimal(position, StrictJson.UINT_DIGITS, 0).toJavaBigDecimal.toBigIntegerExact
}

final class DoubleField(kind: String, source: String, field: ProgramField) extends FieldTerm(kind, source, field) {
  override protected def read(row: InternalRow, position: Int): Any = row.getDouble(position)
}

final class BooleanField(kind: String, source: String, field: ProgramField) extends FieldTerm(kind, source, field) {
  override protected def read(row: InternalRow, position: Int): Any = row.getBoolean(position)
}

final class TextField(kind: String, source: String, field: ProgramField) extends FieldTerm(kind, source, field) {
  override protected def read(row: InternalRow, position: Int): Any = row.getUTF8String(position)
}

/** A field that comes as JSON text, which is opened. */
final class OpenedField(kind: String, source: String, field: ProgramField) extends FieldTerm(kind, source, field) {
  override protected def read(row: InternalRow, position: Int): Any = row.getUTF8String(position)

  override def value(e: Evaluation): Any = {
    if (e.opened(field.number).asInstanceOf[AnyRef] eq Evaluation.UNKNOWN)
      e.opened(field.number) = passedOn(e) match {
        case null => null
        case text: UTF8String =>
          try JsonValues.read(text)
          catch { case refusal: Refusal => fail(refusal.getMessage) }
      }
    e.opened(field.number)
  }
}

object FieldTerm {

  def apply(kind: String, source: String, field: ProgramField): FieldTerm = kind match {
    case "int" | "time" => new LongField(kind, source, field)
    case "uint" => new UnsignedField(kind, source, field)
    case "float" => new DoubleField(kind, source, field)
    case "bool" => new BooleanField(kind, source, field)
    case "array" | "map" | "any" => new OpenedField(kind, source, field)
    case _ => new TextField(kind, source, field)
  }

  /** The type of a field's column. */
  def dataType(kind: String): DataType = kind match {
    case "int" => LongType
    case "uint" => DecimalType(StrictJson.UINT_DIGITS, 0)
    case "float" => DoubleType
    case "bool" => BooleanType
    case "time" => TimestampType
    case _ => StringType
  }
}

/** A term that occurs several times, as the value of a variable does: it is evaluated once a record. */
final class KeptTerm(term: Term, index: Int) extends Term {
  override def kind: String = term.kind
  override def source: String = term.source
  override def value(e: Evaluation): Any = {
    if (e.values(index).asInstanceOf[AnyRef] eq Evaluation.UNKNOWN) e.values(index) = term.value(e)
    e.values(index)
  }
}

/** An operand as a value of the kind that `of` has, which may be wider than its own. */
final class WidenedTerm(term: Term, of: Term, val kind: String) extends Term {
  override def source: String = term.source
  private val widen: Any => Any = (term.kind, kind) match {
    case ("uint", "int") => number => long(number.asInstanceOf[BigInteger])
    case (_, "float") => number => Values.double(number)
    case ("float", _) => number => if (Values.isFinite(Values.double(number))) number else of.fail(Term.NOT_FINITE)
    case _ => value => value
  }
  override def value(e: Evaluation): Any = {
    val found = term.value(e)
    if (found == null) null else widen(found)
  }

  private def long(number: BigInteger): Long =
    if (number.bitLength < 64) number.longValue else of.fail("a number exceeds 64 bits")
}

object WidenedTerm {
  def apply(term: Term, of: Term, kind: String): Term =
    if (term.kind == kind || term.kind == "nil") term else new WidenedTerm(term, of, kind)
}
