package glassflow

import org.apache.spark.unsafe.types.UTF8String

/** A call of a function: its arguments, and what it makes of them.
  *
  * build: see TextCalls and the other objects of functions.
  */
final class Call(val kind: String, val source: String, val arguments: Array[Term], build: Call => Evaluation => Any)
    extends Term {
  private val evaluate = build(this)
  override def value(e: Evaluation): Any = evaluate(e)

  def count: Int = arguments.length

  /** An argument's value; nil is a failure. */
  def given(e: Evaluation, i: Int): Any = arguments(i).notNil(e, this)
  def text(e: Evaluation, i: Int): UTF8String = arguments(i).text(e, this)
  def double(e: Evaluation, i: Int): Double = arguments(i).double(e, this)
  def long(e: Evaluation, i: Int): Long = arguments(i).long(e, this)
  def items(e: Evaluation, i: Int): Array[Any] = arguments(i).list(e, this).items

  /** The text of an argument of a helper, which is tolerant: null for any other value. */
  def textOrNull(e: Evaluation, i: Int): UTF8String = arguments(i).value(e) match {
    case text: UTF8String => text
    case _ => null
  }

  /** A literal argument; empty without one. */
  def literal(i: Int): String = if (i >= count) "" else String.valueOf(arguments(i).value(null))
}

object Call {

  /** What makes the function of a call. */
  type Build = Call => Evaluation => Any

  /** The functions of expr, for which nil is a failure, and GlassFlow's helpers, which have a default for it. */
  val BUILTINS: Map[String, Build] =
    TextCalls.BUILTINS ++ NumberCalls.BUILTINS ++ ListCalls.BUILTINS ++ JsonCalls.BUILTINS ++ TimeCalls.BUILTINS
  val HELPERS: Map[String, Build] =
    TextCalls.HELPERS ++ NumberCalls.HELPERS ++ JsonCalls.HELPERS ++ UrlCalls.HELPERS ++ TimeCalls.HELPERS ++
      AgentCalls.HELPERS ++ TimeCalls.FROM_UNIX
}
