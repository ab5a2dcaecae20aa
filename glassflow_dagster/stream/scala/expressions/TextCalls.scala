package glassflow

import org.apache.spark.unsafe.types.UTF8String

/** Functions of texts. Lengths and positions count characters. */
object TextCalls {
  import Call.Build

  // Characters of the longest text that repeat() returns; expr's own limit.
  private final val MOST_REPEATED = 1000000

  val BUILTINS: Map[String, Build] = Map(
    "lower" -> ofText(Scalars.lower),
    "upper" -> ofText(Scalars.upper),
    "trim" -> (call => e => trim(call.text(e, 0), if (call.count > 1) call.text(e, 1) else null)),
    "trimPrefix" -> ofTwo((text, part) => if (text.startsWith(part)) from(text, part.numBytes, 0) else text),
    "trimSuffix" -> ofTwo((text, part) => if (text.endsWith(part)) from(text, 0, part.numBytes) else text),
    "replace" -> (call => e => call.text(e, 0).replace(call.text(e, 1), call.text(e, 2))),
    "split" -> (call => {
      val split = splitter(call.literal(1))
      e => split(call.text(e, 0))
    }),
    "join" -> (call => e => join(call.items(e, 0), if (call.count > 1) call.text(e, 1) else UTF8String.EMPTY_UTF8)),
    "repeat" -> (call => e => repeat(call, call.text(e, 0), call.arguments(1).number(e, call))),
    "indexOf" -> ofTwo((text, part) => text.indexOf(part, 0).toLong),
    "lastIndexOf" -> ofTwo(lastIndexOf),
    "hasPrefix" -> ofTwo(_.startsWith(_)),
    "hasSuffix" -> ofTwo(_.endsWith(_)),
    "string" -> (call => e => Values.text(call.given(e, 0))),
    "toBase64" -> ofText(text => UTF8String.fromBytes(java.util.Base64.getEncoder.encode(text.getBytes))),
    "fromBase64" -> (call =>
      e => {
        val decoded = fromBase64(call.text(e, 0))
        if (decoded == null) call.fail("the value is not Base64 text") else decoded
      }
    )
  )

  val HELPERS: Map[String, Build] = Map(
    "toString" -> (call => e => orElse(Values.text(call.arguments(0).value(e)), UTF8String.EMPTY_UTF8)),
    "upper" -> ofTextOrEmpty(Scalars.upper),
    "lower" -> ofTextOrEmpty(Scalars.lower),
    "trim" -> (call =>
      e => {
        val (text, characters) = (call.textOrNull(e, 0), if (call.count > 1) call.textOrNull(e, 1) else null)
        if (text == null || call.count > 1 && characters == null) UTF8String.EMPTY_UTF8 else trim(text, characters)
      }
    ),
    "containsStr" -> ofTwoOrFalse(_.contains(_)),
    "hasPrefix" -> ofTwoOrFalse(_.startsWith(_)),
    "hasSuffix" -> ofTwoOrFalse(_.endsWith(_)),
    "split" -> (call => {
      val split = splitter(call.literal(1))
      e => {
        val text = call.textOrNull(e, 0)
        if (text == null || text.numBytes == 0) Values.EMPTY else split(text)
      }
    }),
    "join" -> (call =>
      e =>
        (call.arguments(0).value(e), if (call.count > 1) call.textOrNull(e, 1) else UTF8String.EMPTY_UTF8) match {
          case (list: ListValue, separator: UTF8String) => join(list.items, separator)
          case _ => UTF8String.EMPTY_UTF8
        }
    ),
    "replace" -> (call =>
      e => {
        val (text, part, other) = (call.textOrNull(e, 0), call.textOrNull(e, 1), call.textOrNull(e, 2))
        if (text == null || part == null || other == null) UTF8String.EMPTY_UTF8 else text.replace(part, other)
      }
    )
  )

  private def ofText(function: UTF8String => Any): Build = call => e => function(call.text(e, 0))

  private def ofTwo(function: (UTF8String, UTF8String) => Any): Build =
    call => e => function(call.text(e, 0), call.text(e, 1))

  private def ofTextOrEmpty(function: UTF8String => UTF8String): Build = call =>
    e => {
      val text = call.textOrNull(e, 0)
      if (text == null) UTF8String.EMPTY_UTF8 else function(text)
    }

  private def ofTwoOrFalse(function: (UTF8String, UTF8String) => Boolean): Build = call =>
    e => {
      val (text, part) = (call.textOrNull(e, 0), call.textOrNull(e, 1))
      text != null && part != null && function(text, part)
    }

  def orElse(found: UTF8String, otherwise: UTF8String): UTF8String = if (found == null) otherwise else found

  /** A text without these characters at both ends; null for Go's white space. */
  private def trim(text: UTF8String, characters: UTF8String): UTF8String =
    if (characters == null) Scalars.trim(text) else text.trim(characters)

  /** A text without so many bytes at its beginning and its end. */
  private def from(text: UTF8String, before: Int, after: Int): UTF8String =
    UTF8String.fromBytes(text.getBytes, before, text.numBytes - before - after)

  /** What splits a text at each separator; an empty one splits it into its characters. */
  private def splitter(separator: String): UTF8String => ListValue = {
    val wanted = UTF8String.fromString(separator)
    if (wanted.numBytes > 0) text => ListValue(Scalars.split(text, wanted))
    else text => ListValue(Array.tabulate[Any](text.numChars)(i => text.substring(i, i + 1)))
  }

  /** The texts of a list with a separator between them; nil is left out. */
  private def join(items: Array[Any], separator: UTF8String): UTF8String = {
    val texts = items.filter(_ != null).map(Values.text)
    UTF8String.concatWs(separator, texts: _*)
  }

  private def repeat(call: Call, text: UTF8String, count: Any): UTF8String = {
    val (times, characters) = (Values.double(count), text.numChars)
    if (times < 0 || times > MOST_REPEATED || times * characters > MOST_REPEATED)
      call.fail(f"a string is repeated from 0 times to $MOST_REPEATED%,d characters")
    text.repeat(times.toInt)
  }

  /** The last position of a part; -1 where it is missing. */
  private def lastIndexOf(text: UTF8String, part: UTF8String): Long = {
    val fromEnd = text.reverse().indexOf(part.reverse(), 0)
    if (fromEnd < 0) -1L else text.numChars.toLong - part.numChars - fromEnd
  }

  /** The text that is encoded as Go's base64.StdEncoding does; null where it is not, or its bytes are no UTF-8. */
  private def fromBase64(text: UTF8String): UTF8String = {
    // Go ignores ends of lines, and wants the padding.
    val encoded = text.toString.filter(c => c != '\r' && c != '\n')
    if (encoded.length % 4 != 0) null
    else
      try Utf8.text(java.util.Base64.getDecoder.decode(encoded))
      catch { case _: IllegalArgumentException => null }
  }
}
