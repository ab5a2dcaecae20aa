package glassflow

import org.apache.spark.sql.catalyst.util.SQLOrderingUtil
import org.apache.spark.unsafe.types.UTF8String

/** `not a`, which is true or false. */
final class NotTerm(val kind: String, val source: String, operand: Term) extends Term {
  override def value(e: Evaluation): Any = !operand.truth(e, this)
}

/** `-a` and `+a`. */
final class SignTerm(val kind: String, val source: String, isMinus: Boolean, operand: Term) extends Term {
  override def value(e: Evaluation): Any =
    if (kind == "float") if (isMinus) -operand.double(e, this) else operand.double(e, this)
    else {
      val number = operand.long(e, this)
      if (!isMinus) number else if (number == Long.MinValue) fail(Term.OVERFLOW) else -number
    }
}

/** `condition ? then : otherwise`. */
final class TernaryTerm(val kind: String, val source: String, condition: Term, yes: Term, no: Term) extends Term {
  private val (thenTerm, elseTerm) = (WidenedTerm(yes, this, kind), WidenedTerm(no, this, kind))
  override def value(e: Evaluation): Any = if (condition.truth(e, this)) thenTerm.value(e) else elseTerm.value(e)
}

/** `a and b`, `a or b`: the right side counts where the left one does not decide. */
final class LogicTerm(val kind: String, val source: String, isAnd: Boolean, left: Term, right: Term) extends Term {
  override def value(e: Evaluation): Any = {
    val first = left.truth(e, this)
    if (first == isAnd) right.truth(e, this) else first
  }
}

/** `a ?? b`: b where a is nil. */
final class CoalesceTerm(val kind: String, val source: String, left: Term, right: Term) extends Term {
  private val (first, other) = (WidenedTerm(left, this, kind), WidenedTerm(right, this, kind))
  override def value(e: Evaluation): Any = {
    val found = first.value(e)
    if (found != null) found else other.value(e)
  }
}

/** `a == b` and `a != b`: nil equals only nil. */
final class EqualTerm(val kind: String, val source: String, isEqual: Boolean, left: Term, right: Term) extends Term {
  override def value(e: Evaluation): Any = Values.same(left.value(e), right.value(e)) == isEqual
}

/** The same of two texts or two whole numbers. */
final class SameTerm(val kind: String, val source: String, isEqual: Boolean, left: Term, right: Term) extends Term {
  override def value(e: Evaluation): Any = {
    val (one, other) = (left.value(e).asInstanceOf[AnyRef], right.value(e).asInstanceOf[AnyRef])
    (if (one == null) other == null else one.equals(other)) == isEqual
  }
}

/** `< <= > >=` of two numbers, texts, times or durations. */
final class OrderTerm(val kind: String, val source: String, operator: String, left: Term, right: Term) extends Term {
  private val test: Int => Boolean = operator match {
    case "<" => _ < 0
    case "<=" => _ <= 0
    case ">" => _ > 0
    case ">=" => _ >= 0
  }
  // Of a value whose type only the record tells, and a number or a text, the other side tells it.
  private val kinds = Set(left.kind, right.kind)
  // A number in JSON is a double; the other one is, too, then.
  private val comparesDoubles = kinds("any")
  private val compare: Evaluation => Int =
    if (kinds("int") || kinds("uint") || kinds("float"))
      e => {
        val (one, other) = (left.number(e, this), right.number(e, this))
        if (comparesDoubles) SQLOrderingUtil.compareDoubles(Values.double(one), Values.double(other))
        else Values.compareNumbers(one, other)
      }
    else if (kinds("string")) e => left.text(e, this).binaryCompare(right.text(e, this))
    else e => java.lang.Long.compare(left.long(e, this), right.long(e, this)) // two times or durations

  override def value(e: Evaluation): Any = test(compare(e))
}

/** contains, startsWith and endsWith of two texts. */
final class TextTestTerm(val kind: String, val source: String, operator: String, left: Term, right: Term) extends Term {
  private val test: (UTF8String, UTF8String) => Boolean = operator match {
    case "contains" => _.contains(_)
    case "startsWith" => _.startsWith(_)
    case "endsWith" => _.endsWith(_)
  }
  override def value(e: Evaluation): Any = test(left.text(e, this), right.text(e, this))
}

/** `a matches "pattern"`, with Go's regular expressions. pattern: as definition/expressions/patterns.py gives it. */
final class MatchesTerm(val kind: String, val source: String, left: Term, pattern: String) extends Term {
  private val searched = new GoPattern(pattern)
  override def value(e: Evaluation): Any = searched.isIn(left.text(e, this))
}

/** `+` of two texts. */
final class JoinedTextTerm(val kind: String, val source: String, left: Term, right: Term) extends Term {
  override def value(e: Evaluation): Any = UTF8String.concat(left.text(e, this), right.text(e, this))
}

/** `+ - * %` of two whole numbers; a result beyond 64 bits is a failure. */
final class IntegerTerm(val kind: String, val source: String, operator: String, left: Term, right: Term) extends Term {
  private val compute: (Long, Long) => Long = operator match {
    case "+" => Math.addExact(_, _)
    case "-" => Math.subtractExact(_, _)
    case "*" => Math.multiplyExact(_, _)
    case "%" => (one, other) => if (other == 0) fail("division by zero") else one % other
  }
  override def value(e: Evaluation): Any = {
    val (one, other) = (left.long(e, this), right.long(e, this))
    try compute(one, other)
    catch { case _: ArithmeticException => fail(Term.OVERFLOW) }
  }
}

/** `+ - * / **` of numbers one of which is a float, or whose result is one. */
final class FloatTerm(val kind: String, val source: String, operator: String, left: Term, right: Term) extends Term {
  private val compute: (Double, Double) => Double = operator match {
    case "+" => _ + _
    case "-" => _ - _
    case "*" => _ * _
    case "/" => (one, other) => if (other == 0) fail("division by zero") else one / other
    case "**" => (one, other) => {
        val power = StrictMath.pow(one, other)
        if (power.isNaN) fail("the power is undefined") else power
      }
  }
  override def value(e: Evaluation): Any = compute(left.double(e, this), right.double(e, this))
}

/** `+ - *` of times and durations, and of a whole number and a duration, in microseconds. */
final class TimeTerm(val kind: String, val source: String, operator: String, left: Term, right: Term) extends Term {
  private val compute: (Long, Long) => Long = operator match {
    case "+" => Math.addExact(_, _)
    case "-" => Math.subtractExact(_, _)
    case "*" => Math.multiplyExact(_, _)
  }
  override def value(e: Evaluation): Any = {
    val (one, other) = (left.long(e, this), right.long(e, this))
    val micros =
      try compute(one, other)
      catch { case _: ArithmeticException => if (kind == "time") failTime() else fail(Term.OVERFLOW) }
    if (kind == "time" && !TimeCalls.isWritable(micros)) failTime() else micros
  }
  private def failTime(): Nothing = fail("the result is not a time in the years 1 to 9999")
}

/** `first..last`: the whole numbers from one to the other, both included; none where the last one is less. */
final class RangeTerm(val kind: String, val source: String, val first: Term, val last: Term) extends Term {
  import RangeTerm._

  override def value(e: Evaluation): Any = {
    val (from, to) = (first.long(e, this), last.long(e, this))
    if (to < from) Values.EMPTY
    else if (to - from < 0 || to - from >= LONGEST) fail(f"a range has at most $LONGEST%,d numbers")
    else ListValue(Array.tabulate[Any]((to - from).toInt + 1)(i => from + i))
  }
}

object RangeTerm {
  // expr's own limit.
  private final val LONGEST = 1000000
}

/** `needle in haystack`: an element of a list, or a name in an object. In nil nothing is found. */
final class InTerm(val kind: String, val source: String, needle: Term, haystack: Term) extends Term {
  override def value(e: Evaluation): Any = {
    val wanted = needle.value(e)
    haystack.value(e) match {
      case null => false
      case list: ListValue => list.items.exists(Values.same(_, wanted))
      case members: ObjectValue => wanted match {
          case name: UTF8String => members.has(name)
          case _ => false
        }
      case _ => fail(s"${haystack.source} is neither an array nor an object")
    }
  }
}

/** `needle in [a, b]`. */
final class InListTerm(val kind: String, val source: String, needle: Term, items: Array[Term]) extends Term {
  private val isFound: (Evaluation, Any) => Boolean =
    if (items.nonEmpty && items.forall(item => item.isInstanceOf[LiteralTerm] && item.kind == "string")) {
      val texts = new java.util.HashSet[Any]()
      items.foreach(item => texts.add(item.value(null)))
      (_, wanted) => texts.contains(wanted)
    } else (e, wanted) => items.map(_.value(e)).exists(Values.same(_, wanted))

  override def value(e: Evaluation): Any = isFound(e, needle.value(e))
}

/** `needle in first..last` of a whole number, without the list of numbers. */
final class InRangeTerm(val kind: String, val source: String, needle: Term, range: RangeTerm) extends Term {
  override def value(e: Evaluation): Any = {
    val wanted = needle.value(e)
    val (from, to) = (range.first.long(e, range), range.last.long(e, range))
    wanted != null && Values.compareNumbers(wanted, from) >= 0 && Values.compareNumbers(wanted, to) <= 0
  }
}
