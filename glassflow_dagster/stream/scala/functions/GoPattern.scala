package glassflow

import com.google.re2j.Pattern
import org.apache.spark.unsafe.types.UTF8String

/** Searches texts for a regular expression in Go's syntax, in time linear in the text's length. Java's own engine
  * backtracks, on its stack: a record could block a batch for ever, or end the driver by a stack overflow.
  *
  * @param pattern
  *   as definition/expressions/patterns.py produces it
  */
class GoPattern(pattern: String) extends Serializable {
  // Compiled with the first text of a task; the driver, which only plans, does not need it.
  @transient private lazy val compiled = Pattern.compile(pattern)

  // Matched as a String: with UTF-8 bytes, RE2/J 1.8 takes the position after each non-ASCII character for the
  // beginning of the text.
  def isIn(text: UTF8String): Boolean = compiled.matcher(text.toString).find()
}
