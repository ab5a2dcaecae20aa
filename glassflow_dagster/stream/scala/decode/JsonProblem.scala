package glassflow

import scala.util.matching.Regex

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.core.exc.StreamConstraintsException

/** Says what is wrong with JSON. Jackson's own messages name its classes, and switches that a user does not have. */
object JsonProblem {

  /** What is wrong, for a reason. The bytes have been found to be UTF-8 before. */
  def of(error: JsonProcessingException): String = error match {
    case beyond: StreamConstraintsException => StrictJson.beyondBounds(beyond)
    case _ => "invalid JSON: " + inWords(error.getOriginalMessage)
  }

  private def inWords(message: String): String = {
    val found = PROBLEMS.iterator.flatMap { case (pattern, words) => pattern.findFirstMatchIn(message).map(words) }
    if (found.hasNext) found.next() else message.takeWhile(_ != '\n')
  }

  // The beginning of Jackson's message -> what is said in its place; the first one counts.
  private val PROBLEMS: Seq[(Regex, Regex.Match => String)] = Seq(
    at("Unexpected end-of-input")(_ => "it ends too early"),
    at("Non-standard token '(.*?)'")(m => s"${m.group(1)} is not a number in JSON (send null, or a text)"),
    at("Unrecognized token '(.*?)'")(m => s"'${m.group(1)}' is no value (a text needs double quotes)"),
    at("Invalid UTF-8")(_ => "a character that is in no text (a text needs double quotes)"),
    at("Invalid numeric value: Leading zero")(_ => "a number begins with a needless 0"),
    at("Illegal unquoted character .*?code (\\d+)")(m =>
      s"a text has a control character (code ${m.group(1)}) that is not escaped"
    ),
    at("Illegal character .*?code (\\d+)")(m => s"a control character (code ${m.group(1)}) that is in no text"),
    at("Unrecognized character escape '(.)'")(m => s"the escape \\${m.group(1)}, which JSON does not have"),
    at("Unexpected close marker '(.)': expected '(.)'")(m => s"'${m.group(1)}' where '${m.group(2)}' belongs"),
    at("Unexpected close marker '(.)'")(m => s"'${m.group(1)}' closes nothing"),
    at("Unexpected character .*plus sign")(_ => "a number begins with +"),
    at("Unexpected character .*Decimal point")(_ => "no digit follows the point of a number"),
    at("Unexpected character .*minus sign")(_ => "no digit follows a minus sign"),
    at("Unexpected character .*Exponent")(_ => "no digit follows the e of a number"),
    at("Unexpected character .*comment")(_ => "a comment, which JSON does not have"),
    at("Unexpected character .*hex-digit")(_ => "\\u without four hexadecimal digits"),
    unexpected("comma to separate", "a comma or the end belongs"),
    unexpected("start field name", "a name in double quotes belongs"),
    unexpected("a colon", "a colon belongs"),
    unexpected("value", "a value belongs")
  )

  private def at(pattern: String)(words: Regex.Match => String): (Regex, Regex.Match => String) =
    s"(?s)\\A$pattern".r -> words

  private def unexpected(pattern: String, belongs: String): (Regex, Regex.Match => String) =
    at(s"Unexpected character \\('(.+?)' .*$pattern")(m => s"'${m.group(1)}' where $belongs")
}
