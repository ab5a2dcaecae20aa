package glassflow

import java.math.BigInteger
import java.util.regex.Pattern

import org.apache.spark.sql.catalyst.util.SQLOrderingUtil
import org.apache.spark.unsafe.types.UTF8String

/** Functions of numbers, and conversions to numbers. */
object NumberCalls {
  import Call.Build

  // Possessive quantifiers (++, *+): with backtracking Java would try a million digits in 10^12 ways.
  private val REAL = Pattern.compile("[+-]?(\\d++(\\.\\d*+)?|\\.\\d++)([eE][+-]?\\d++)?")

  val BUILTINS: Map[String, Build] = Map(
    "int" -> (call =>
      e => {
        val found = integer(call.given(e, 0))
        if (found == null) call.fail("the value is not a 64-bit integer") else found
      }
    ),
    "float" -> (call =>
      e => {
        val found = realOrNull(call.given(e, 0))
        if (found == null) call.fail("the value is not a number") else found
      }
    ),
    "abs" -> (call =>
      if (call.kind == "float") e => Math.abs(call.double(e, 0))
      else e => {
        val number = call.long(e, 0)
        if (number == Long.MinValue) call.fail(Term.OVERFLOW) else Math.abs(number)
      }
    ),
    // The sum with 0.0 makes 0.0 of -0.0.
    "floor" -> (call => e => Math.floor(call.double(e, 0)) + 0.0),
    "ceil" -> (call => e => -(Math.floor(-call.double(e, 0)) + 0.0)),
    "round" -> (call => e => Scalars.round(call.double(e, 0))),
    "min" -> extreme(comparison => comparison < 0),
    "max" -> extreme(comparison => comparison > 0),
    "sum" -> (call =>
      if (call.kind == "int") e => sum(call.items(e, 0).map(long(_, call)), call)
      else e => numbers(call, call.items(e, 0)).sum
    ),
    "mean" -> (call =>
      e => {
        val found = numbers(call, call.items(e, 0))
        if (found.isEmpty) 0.0 else found.sum / found.length
      }
    ),
    "median" -> (call =>
      e => {
        val found = numbers(call, call.items(e, 0)).sortWith(SQLOrderingUtil.compareDoubles(_, _) < 0)
        // The two middle ones: the same one of an odd number. Halved first: the sum may be beyond the greatest double.
        if (found.isEmpty) 0.0 else found((found.length - 1) / 2) / 2.0 + found(found.length / 2) / 2.0
      }
    )
  )

  val HELPERS: Map[String, Build] = Map(
    "toInt" -> (call => e => toInt(call.arguments(0).value(e))),
    "toFloat" -> (call =>
      e => {
        val found = realOrNull(call.arguments(0).value(e))
        if (found == null) 0.0 else found
      }
    )
  )

  /** The sum of whole numbers; one beyond 64 bits is a failure. */
  def sum(numbers: Array[Long], of: Term): Long =
    try numbers.foldLeft(0L)(Math.addExact(_, _))
    catch { case _: ArithmeticException => of.fail(Term.OVERFLOW) }

  /** The whole number of a text of digits, with or without a sign, of a number without its fraction, else null. */
  private def integer(value: Any): java.lang.Long = value match {
    case number: java.lang.Long => number
    case number: BigInteger => if (number.bitLength < 64) number.longValue else null
    case number: NumberValue if number.isInteger => Scalars.integer(UTF8String.fromString(number.written))
    case number if Values.isNumber(number) => truncated(Values.double(number))
    case text: UTF8String => Scalars.integer(text)
    case _ => null
  }

  private def truncated(number: Double): java.lang.Long =
    if (number <= Long.MaxValue && number >= Long.MinValue) number.toLong else null

  /** The double of a number or the text of one; null for any other value. */
  def realOrNull(value: Any): java.lang.Double = value match {
    case number if Values.isNumber(number) => Values.double(number)
    case text: UTF8String =>
      val digits = text.toString
      if (REAL.matcher(digits).matches) java.lang.Double.parseDouble(digits) else null
    case _ => null
  }

  /** As GlassFlow's toInt(): a whole number or its text, else the floor of a number; 0 for the rest. */
  private def toInt(value: Any): Long = value match {
    case number: java.lang.Long => number
    case number: java.lang.Double => if (number.isNaN) 0 else Scalars.toInt(number)
    case null | _: java.lang.Boolean => 0
    case other =>
      val exact = Scalars.integer(Values.text(other))
      if (exact != null) exact
      else {
        val real = realOrNull(other)
        val found = if (real == null) null else truncated(Math.floor(real))
        if (found == null) 0 else found
      }
  }

  private def long(item: Any, of: Term): Long = item match {
    case number: java.lang.Long => number
    case _ => of.fail("an element is not a number")
  }

  private def numbers(of: Call, items: Array[Any]): Array[Double] =
    items.map(item => if (Values.isNumber(item)) Values.double(item) else of.fail("an element is not a number"))

  /** min() or max() of several numbers, or of one list of them: nil for an empty one. */
  private def extreme(isBetter: Int => Boolean): Build = call => {
    val isList = call.count == 1 && (call.arguments(0).kind match {
      case "int" | "uint" | "float" => false
      case _ => true
    })
    val ofCall: Any => Any =
      if (call.kind == "int") identity else number => Values.double(number)
    def best(numbers: Array[Any]): Any = numbers.reduceOption { (found, other) =>
      if (isBetter(Values.compareNumbers(other, found))) other else found
    }.orNull
    if (isList) e => {
      val items = call.given(e, 0) match {
        case list: ListValue => list.items
        case single => Array[Any](single) // of a value in JSON, which only the record tells
      }
      best(items.map(item => if (Values.isNumber(item)) ofCall(item) else call.fail("an element is not a number")))
    }
    else if (call.kind == "int") e => best(call.arguments.map[Any](_.long(e, call)))
    else e => best(call.arguments.map[Any](_.double(e, call)))
  }
}
