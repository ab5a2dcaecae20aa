package glassflow

import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}

import org.apache.spark.unsafe.types.UTF8String

/** JSON that grows, in UTF-8. To be used by one thread.
  *
  * @param quotesNaN
  *   whether NaN and infinite numbers, which JSON does not have, are texts; otherwise they are refused
  */
final class JsonText(val quotesNaN: Boolean = false) {
  import JsonText._

  private var bytes = new Array[Byte](FIRST_BYTES)
  private var length = 0

  def clear(): Unit = {
    length = 0
    // After a large value, its memory is not kept.
    if (bytes.length > MOST_KEPT) bytes = new Array[Byte](FIRST_BYTES)
  }

  def toText: UTF8String = UTF8String.fromBytes(java.util.Arrays.copyOf(bytes, length))

  /** Add one ASCII character. */
  def add(character: Char): Unit = {
    reserve(1)
    bytes(length) = character.toByte
    length += 1
  }

  /** Add ASCII text as it is. */
  def add(ascii: String): Unit = addBytes(ascii.getBytes(ISO_8859_1))

  def addBytes(more: Array[Byte]): Unit = {
    reserve(more.length)
    System.arraycopy(more, 0, bytes, length, more.length)
    length += more.length
  }

  /** Add a text in quotes, with the escapes that JSON demands (RFC 8259, section 7). */
  def quote(text: UTF8String): Unit = {
    add('"')
    val plain = text.getBytes
    var i = 0
    while (i < plain.length) {
      val byte = plain(i)
      if (byte == '"' || byte == '\\') {
        add('\\')
        add(byte.toChar)
      } else if (byte >= 0 && byte < ' ') add(CONTROLS(byte))
      else add(byte.toChar)
      i += 1
    }
    add('"')
  }

  private def reserve(more: Int): Unit =
    if (length + more > bytes.length) {
      if (length.toLong + more > MOST_BYTES) throw new Refusal(s"holds a value of more than $MOST_BYTES bytes as JSON")
      bytes = java.util.Arrays.copyOf(bytes, math.min(MOST_BYTES, math.max(length + more, bytes.length * 2)))
    }
}

object JsonText {
  // As for the texts of JSON records, so that a replayed value fits, too.
  private final val MOST_BYTES = StrictJson.TEXT_CHARACTERS
  private final val FIRST_BYTES = 256
  private final val MOST_KEPT = 1 << 20
  private val CONTROLS = Array.tabulate(' '.toInt)(code => f"\\u$code%04x")

  /** A text in quotes, as bytes. */
  def quoted(text: String): Array[Byte] = {
    val json = new JsonText
    json.quote(UTF8String.fromBytes(text.getBytes(UTF_8)))
    json.toText.getBytes
  }
}
