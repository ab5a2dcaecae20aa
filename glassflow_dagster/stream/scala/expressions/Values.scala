package glassflow

import java.math.{BigDecimal, BigInteger}
import java.util.{HashMap => JavaMap}

import org.apache.spark.sql.catalyst.util.SQLOrderingUtil
import org.apache.spark.unsafe.types.UTF8String

/** A list that an expression makes, or a JSON array. */
final case class ListValue(items: Array[Any]) {
  def size: Int = items.length

  /** The position of an index, of which a negative one counts from the end; -1 where it is out of range. */
  def position(index: Long): Int = {
    val found = if (index < 0) index + size else index
    if (found < 0 || found >= size) -1 else found.toInt
  }
}

/** An object, with its members in the order of the record. No name is there twice. */
final case class ObjectValue(names: Array[UTF8String], values: Array[Any]) {
  // Of an object with few members each name is compared.
  private lazy val positions: JavaMap[UTF8String, Int] = {
    val found = new JavaMap[UTF8String, Int](names.length * 2)
    names.indices.foreach(i => found.put(names(i), i))
    found
  }

  /** The value of a name; null where there is none. */
  def get(name: UTF8String): Any = {
    val i = position(name)
    if (i < 0) null else values(i)
  }

  def has(name: UTF8String): Boolean = position(name) >= 0

  private def position(name: UTF8String): Int =
    if (names.length <= ObjectValue.FEW_NAMES) names.indexOf(name) else positions.getOrDefault(name, -1)

  /** The positions of the members, in the alphabetical order of their names. */
  def sorted: Array[Int] = names.indices.toArray.sortWith((a, b) => names(a).binaryCompare(names(b)) < 0)
}

object ObjectValue {
  // Up to here to compare all names is quicker than to hash them.
  final val FEW_NAMES = 8
}

/** A number as a record's JSON has it, with all its digits. It is within the range of a double. */
final class NumberValue(val written: String) {
  lazy val double: Double = java.lang.Double.parseDouble(written)
  lazy val exact: BigDecimal = StrictJson.decimal(written)

  /** The whole number that this is, however it is written; null for another one. */
  def whole: BigInteger = StrictJson.wholeNumber(exact).orNull

  def hasExponent: Boolean = written.indexOf('e') >= 0 || written.indexOf('E') >= 0
  def isInteger: Boolean = !hasExponent && written.indexOf('.') < 0
}

/** An array or object as JSON in one form, which differs from a text of these characters. */
final case class NestedKey(json: UTF8String) extends Comparable[NestedKey] {
  override def compareTo(other: NestedKey): Int = json.compareTo(other.json)
}

/** The values of expressions. By their kind (definition/expressions/signatures.py) they are: UTF8String for texts and
  * for fields of many digits, Long for int, duration and time (microseconds, since 1970), BigInteger for uint, Double,
  * Boolean, ListValue, ObjectValue, and NumberValue for numbers inside JSON; null is nil.
  */
object Values {
  val EMPTY: ListValue = ListValue(Array.empty)

  def isNumber(value: Any): Boolean = value match {
    case _: NumberValue | _: java.lang.Long | _: java.lang.Double | _: BigInteger => true
    case _ => false
  }

  /** A number as a double, as GlassFlow reads all numbers in JSON. */
  def double(number: Any): Double = number match {
    case value: java.lang.Double => value
    case value: java.lang.Long => value.toDouble
    case value: BigInteger => value.doubleValue
    case value: NumberValue => value.double
  }

  def isFinite(number: Double): Boolean = !number.isNaN && !number.isInfinite

  /** A whole number of 64 bits or an unsigned one; null for any other value. */
  private def integer(value: Any): BigInteger = value match {
    case number: java.lang.Long => BigInteger.valueOf(number)
    case number: BigInteger => number
    case _ => null
  }

  /** Compare two numbers: whole ones exactly, others as doubles. NaN is the greatest, as in Spark. */
  def compareNumbers(left: Any, right: Any): Int = (left, right) match {
    case (one: java.lang.Long, other: java.lang.Long) => java.lang.Long.compare(one, other)
    case _ =>
      val (one, other) = (integer(left), integer(right))
      if (one != null && other != null) one.compareTo(other)
      else SQLOrderingUtil.compareDoubles(double(left), double(right))
  }

  /** Whether two values are equal. nil equals only nil; a number equals no text. */
  def same(left: Any, right: Any): Boolean = (left, right) match {
    case (null, null) => true
    case (null, _) | (_, null) => false
    case (one: UTF8String, other: UTF8String) => one == other
    case (one: java.lang.Boolean, other: java.lang.Boolean) => one == other
    case (one: ListValue, other: ListValue) =>
      one.size == other.size && one.items.indices.forall(i => same(one.items(i), other.items(i)))
    case (one: ObjectValue, other: ObjectValue) =>
      one.names.length == other.names.length &&
      one.names.indices.forall(i => other.has(one.names(i)) && same(one.values(i), other.get(one.names(i))))
    case _ => isNumber(left) && isNumber(right) && compareNumbers(left, right) == 0
  }

  /** An object for a hash table: equal for values that are the same as values in JSON, whose numbers are doubles. It
    * has an order, by which Java finds it quickly also among many that have its hash, as a producer might send them.
    */
  private def key(value: Any): Any = value match {
    case _: ListValue | _: ObjectValue => NestedKey(JsonWriter.sortedText(withDoubles(value)))
    case other => withDoubles(other)
  }

  private def withDoubles(value: Any): Any = value match {
    case list: ListValue => ListValue(list.items.map(withDoubles))
    case members: ObjectValue => ObjectValue(members.names, members.values.map(withDoubles))
    case number if isNumber(number) => double(number) + 0.0 // -0.0 is 0.0
    case other => other
  }

  /** The distinct values, in order. */
  def distinct(items: Array[Any]): Array[Any] = {
    val found = new java.util.HashSet[Any]()
    items.filter(item => found.add(key(item)))
  }

  /** A value as text in the format of Go's %v, arrays and objects as JSON; null for nil. */
  def text(value: Any): UTF8String = value match {
    case null => null
    case text: UTF8String => text
    case number: java.lang.Double => Scalars.floatText(number)
    case number: NumberValue => numberText(number)
    case _: ListValue | _: ObjectValue => JsonWriter.text(value)
    case other => UTF8String.fromString(other.toString)
  }

  /** A number in JSON as text: as that of its double if the double has all of the digits, else with all its digits. */
  private def numberText(number: NumberValue): UTF8String =
    if (number.isInteger) UTF8String.fromString(if (number.written == "-0") "0" else number.written)
    else {
      val shortest = if (number.double == 0 && number.exact.signum != 0) number.exact else stripped(number.exact)
      if (isOf(number, shortest)) Scalars.floatText(number.double)
      else if (Math.abs(shortest.scale.toLong) > MOST_PLAIN) UTF8String.fromString(number.written)
      else UTF8String.fromString(shortest.toPlainString)
    }

  /** Whether a double says all of a number: it has the same digits, or the number is the one of as many digits that is
    * next to it, as other programs write their doubles with an exponent.
    */
  private def isOf(number: NumberValue, shortest: BigDecimal): Boolean = {
    val double = number.double
    if (!number.hasExponent) new BigDecimal(double.toString).compareTo(shortest) == 0
    else if (double == 0) shortest.signum == 0
    else shortest.precision <= DOUBLE_DIGITS &&
    new BigDecimal(double).subtract(shortest).abs.multiply(TWO).compareTo(shortest.ulp) <= 0
  }

  private def stripped(number: BigDecimal): BigDecimal =
    if (number.signum == 0) BigDecimal.ZERO else number.stripTrailingZeros

  // So many digits tell all doubles apart.
  private final val DOUBLE_DIGITS = 17
  // As many zeros as digits that a number in JSON may have; an exponent could stand for two billion.
  private final val MOST_PLAIN = StrictJson.NUMBER_CHARACTERS
  private val TWO = BigDecimal.valueOf(2)
}
