package glassflow

import java.nio.ByteOrder
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** The rule for what is UTF-8 (RFC 3629, section 4): no overlong forms, no halves of surrogate pairs, nothing beyond
  * U+10FFFF. Jackson reads some of these as the characters that they stand for, so that two records with other bytes
  * would have equal texts.
  */
object Utf8 {
  private val IS_LITTLE = ByteOrder.nativeOrder == ByteOrder.LITTLE_ENDIAN
  private final val HIGHEST_BITS = 0x8080808080808080L

  /** The length of the character at a position before `end` whose first byte is no ASCII; 0 where there is none. */
  def length(bytes: Array[Byte], position: Int, end: Int): Int = {
    val (first, second) = (bytes(position) & 0xff, continuation(bytes, position + 1, end))
    if (second < 0) 0
    else if (first >= 0xc2 && first <= 0xdf) 2
    else if (continuation(bytes, position + 2, end) < 0) 0
    else if (first == 0xe0) if (second >= 0xa0) 3 else 0
    else if (first == 0xed) if (second <= 0x9f) 3 else 0
    else if (first >= 0xe1 && first <= 0xef) 3
    else if (continuation(bytes, position + 3, end) < 0) 0
    else if (first == 0xf0) if (second >= 0x90) 4 else 0
    else if (first >= 0xf1 && first <= 0xf3) 4
    else if (first == 0xf4) if (second <= 0x8f) 4 else 0
    else 0
  }

  /** A byte that continues a character; -1 where there is none. */
  private def continuation(bytes: Array[Byte], position: Int, end: Int): Int =
    if (position < end && (bytes(position) & 0xc0) == 0x80) bytes(position) & 0xff else -1

  /** The position of the first byte in a range that begins no character; -1 where all of it is UTF-8. */
  def firstInvalid(bytes: Array[Byte], from: Int, end: Int): Int = {
    var at = from
    while (at < end) {
      if (IS_LITTLE) while (at + 8 <= end && isAscii(Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + at))) at += 8
      if (at < end) {
        val count = if (bytes(at) >= 0) 1 else length(bytes, at, end)
        if (count == 0) return at
        at += count
      }
    }
    -1
  }

  private def isAscii(eight: Long): Boolean = (eight & HIGHEST_BITS) == 0

  def isValid(bytes: Array[Byte], from: Int, count: Int): Boolean = firstInvalid(bytes, from, from + count) < 0

  /** Bytes as a text; null where they are not UTF-8. */
  def text(bytes: Array[Byte]): UTF8String =
    if (isValid(bytes, 0, bytes.length)) UTF8String.fromBytes(bytes) else null

  /** Whether UTF-8 has a form for a text of Java's: it has no half of a surrogate pair. */
  def hasForm(text: String): Boolean = !text.exists(_.isSurrogate) || UTF_8.newEncoder().canEncode(text)

  /** What is wrong with the encoding of JSON; null for nothing. A zero in the first four bytes, from which Jackson
    * would detect UTF-16 or UTF-32, is wrong, too.
    */
  def problemOfJson(value: Array[Byte]): String = {
    var position = 0
    while (position < value.length && position < FIRST_BYTES && value(position) != 0) position += 1
    if (position >= value.length || position >= FIRST_BYTES) position = firstInvalid(value, 0, value.length)
    if (position < 0) null else s"invalid JSON: not in UTF-8, at byte $position"
  }

  private final val FIRST_BYTES = 4
}
