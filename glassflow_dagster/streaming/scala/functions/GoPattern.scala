package glassflow

import com.google.re2j.Pattern
import org.apache.spark.unsafe.types.UTF8String

/** Finds a regular expression of Go's syntax in texts, in a time that is linear in the text's length, whatever the text
  * and the expression are. Java's own engine tries alternatives one after the other, on its stack: a record could hold
  * a batch for ever or end the driver.
  *
  * @param pattern
  *   as expressions/language/patterns.py writes it
  */
class GoPattern(pattern: String) extends Serializable {
  // Compiled on the first text of a task: the driver only plans.
  @transient private lazy val compiled = Pattern.compile(pattern)

  // RE2/J 1.8 reads bytes, too, but takes each that follows a character beyond ASCII for the text's beginning.
  def isIn(text: UTF8String): Boolean = compiled.matcher(text.toString).find()
}
