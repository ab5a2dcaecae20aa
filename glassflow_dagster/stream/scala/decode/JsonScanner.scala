package glassflow

import java.nio.ByteOrder
import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}

import org.apache.spark.sql.types.Decimal
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** Decodes good records quickly, and leaves all others to Jackson: it reads only what it knows to be right.
  *
  * Jackson makes Java's texts of UTF-8, and Spark UTF-8 of these again; names are looked up by their hash. Here texts
  * are slices of the record, found eight bytes at once, and a name is first compared with the one that followed the
  * last time, as producers write the members of all records in one order.
  *
  * To be used by one thread.
  */
final class JsonScanner(fields: Array[JsonField], root: Node) {
  import JsonScanner._

  private val kinds: Array[Int] = fields.map(field => KINDS.indexOf(field.kind))
  private val members = new Members(root)
  private val isFound = new Array[Boolean](fields.length)

  private var bytes: Array[Byte] = _
  private var values: Array[Any] = _
  // The next byte to read.
  private var at = 0
  // How many names of this record did not follow as they did the last time.
  private var learned = 0
  // Whether the text that was read last has an escape, such as \n.
  private var hasEscapes = false

  /** Read a record's fields into `values`. False: it is not known to be right, and `values` are of no use. */
  def read(value: Array[Byte], values: Array[Any]): Boolean = {
    this.bytes = value
    this.values = values
    at = 0
    learned = 0
    java.util.Arrays.fill(isFound, false)
    value.length <= StrictJson.TEXT_CHARACTERS && skipSpace() == '{' && readObject(
      members
    ) && skipSpace() == END && hasRequired
  }

  private def hasRequired: Boolean = {
    var i = 0
    while (i < fields.length) {
      if (fields(i).required && values(i) == null) return false
      i += 1
    }
    true
  }

  /** Read an object, whose brace is the next byte, and what is declared in it. Declared names are nested in few levels.
    */
  private def readObject(members: Members): Boolean = {
    at += 1
    if (skipSpace() == '}') {
      at += 1
      return true
    }
    var previous: Member = members.first
    while (true) {
      if (skipSpace() != '"') return false
      at += 1
      val member = readName(members, previous)
      if (member == null || skipSpace() != ':') return false
      at += 1
      if (!readMember(member)) return false
      skipSpace() match {
        case ',' => at += 1
        case '}' =>
          at += 1
          return true
        case _ => return false
      }
      previous = member
    }
    false
  }

  /** The member whose name begins here; null where the name has escapes or is not right. */
  private def readName(members: Members, previous: Member): Member = {
    val expected = previous.next
    if (expected != null && expected.isAt(bytes, at)) {
      at += expected.name.length + 1
      return expected
    }
    val start = at
    if (!skipText() || hasEscapes || at - start > StrictJson.NAME_CHARACTERS) return null
    val found = members.find(bytes, start, at - 1)
    learned += 1
    if (learned <= MOST_LEARNED) previous.next = found
    found
  }

  /** Read a member's value, from the space before it, and set the field that takes it. */
  private def readMember(member: Member): Boolean = {
    val first = skipSpace()
    if (member.isAmbiguous) false
    else if (first == '{' && member.members != null) {
      val start = at
      readObject(member.members) && (member.field < 0 || setSlice(member.field, start))
    } else if (member.field < 0) skipValue()
    else setField(member.field, first)
  }

  /** Set a field to the value that begins here with the byte `first`. */
  private def setField(field: Int, first: Int): Boolean = {
    // Given twice, perhaps by its literal name and by a path.
    if (isFound(field)) return false
    isFound(field) = true
    if (first == 'n') return isLiteral(NULL) && !fields(field).required
    kinds(field) match {
      case STRING => first == '"' && set(field, text())
      case INT => set(field, long())
      case UINT => first != '-' && set(field, unsigned())
      case FLOAT => set(field, real())
      case BOOL =>
        if (isLiteral(TRUE)) set(field, java.lang.Boolean.TRUE)
        else isLiteral(FALSE) && set(field, java.lang.Boolean.FALSE)
      case ARRAY => first == '[' && setSkipped(field)
      case MAP => first == '{' && setSkipped(field)
      case ANY => setAny(field, first)
      case DECIMAL => set(field, textOf(StrictJson.canonical(number())))
      case BIGINT => set(field, textOf(StrictJson.bigInteger(number(), signed = true)))
      case UBIGINT => set(field, textOf(StrictJson.bigInteger(number(), signed = false)))
    }
  }

  private def textOf(text: Option[String]): UTF8String = UTF8String.fromString(text.orNull)

  private def set(field: Int, value: Any): Boolean = {
    values(field) = value
    value != null
  }

  private def setSkipped(field: Int): Boolean = {
    val start = at
    skipValue() && set(field, UTF8String.fromBytes(bytes, start, at - start))
  }

  /** Set a field to an object that was read for the sake of other fields, too. */
  private def setSlice(field: Int, start: Int): Boolean = {
    if (isFound(field) || kinds(field) != MAP && kinds(field) != ANY) return false
    isFound(field) = true
    set(field, UTF8String.fromBytes(bytes, start, at - start))
  }

  /** A text without escapes, as it is; a number that a double holds, as it was written. */
  private def setAny(field: Int, first: Int): Boolean = first match {
    case '"' =>
      val start = at
      at += 1
      skipText() && !hasEscapes && set(field, UTF8String.fromBytes(bytes, start, at - start))
    case '-' | '0' | '1' | '2' | '3' | '4' | '5' | '6' | '7' | '8' | '9' =>
      val start = at
      double() != null && set(field, UTF8String.fromBytes(bytes, start, at - start))
    case _ => setSkipped(field)
  }

  /** The text whose quote is the next byte; null where it is not right. */
  private def text(): UTF8String = {
    at += 1
    val start = at
    if (!skipText()) null
    else if (hasEscapes) unescaped(start, at - 1)
    else UTF8String.fromBytes(bytes, start, at - 1 - start)
  }

  /** The text between two positions, with its escapes replaced; null with half a surrogate pair. */
  private def unescaped(start: Int, end: Int): UTF8String = {
    val found = new Array[Byte](end - start)
    var (from, to) = (start, 0)
    while (from < end) {
      val byte = bytes(from)
      from += 1
      if (byte != '\\') {
        found(to) = byte
        to += 1
      } else if (bytes(from) == 'u') {
        var point = hex(from + 1)
        from += 5
        if (
          Character.isHighSurrogate(point.toChar) && from + 6 <= end && bytes(from) == '\\' && bytes(from + 1) == 'u'
        ) {
          val low = hex(from + 2)
          if (!Character.isLowSurrogate(low.toChar)) return null
          point = Character.toCodePoint(point.toChar, low.toChar)
          from += 6
        } else if (Character.isSurrogate(point.toChar)) return null
        to = put(found, to, point)
      } else {
        found(to) = ESCAPES(bytes(from))
        to += 1
        from += 1
      }
    }
    UTF8String.fromBytes(found, 0, to)
  }

  /** The number of the four hexadecimal digits at a position; -1 where they are none. */
  private def hex(position: Int): Int = {
    var (number, i) = (0, position)
    while (i < position + 4) {
      val digit = if (i < bytes.length) Character.digit(bytes(i).toChar, 16) else -1
      if (digit < 0 || bytes(i) < 0) return -1
      number = number << 4 | digit
      i += 1
    }
    number
  }

  /** A whole number of up to 18 digits; null for any other. */
  private def long(): java.lang.Long = {
    val isNegative = at < bytes.length && bytes(at) == '-'
    if (isNegative) at += 1
    val number = digits()
    if (number < 0 || isNumberGoingOn) null else java.lang.Long.valueOf(if (isNegative) -number else number)
  }

  private def unsigned(): Decimal = {
    val number = digits()
    if (number < 0 || isNumberGoingOn) null else Decimal(BigDecimal(number), StrictJson.UINT_DIGITS, 0)
  }

  /** A number as a double that does not lose what it must keep (see Floats.loss); null for any other. */
  private def real(): java.lang.Double = {
    val start = at
    val number = double()
    if (number == null || Floats.loss(new String(bytes, start, at - start, ISO_8859_1), number, "") == null) number
    else null
  }

  /** A number, correctly rounded; null where it is none, or beyond a double. */
  private def double(): java.lang.Double = {
    val start = at
    val isNegative = at < bytes.length && bytes(at) == '-'
    if (isNegative) at += 1
    val whole = digits()
    if (whole >= 0 && !isNumberGoingOn) java.lang.Double.valueOf((if (isNegative) -whole else whole).toDouble)
    else {
      val (point, scaled) = (at, if (whole >= 0) withDecimals(whole) else -1L)
      if (scaled >= 0) {
        // Both are exact, so their quotient is correctly rounded (Clinger, How to Read Floating Point Numbers
        // Accurately).
        val number = scaled.toDouble / POWERS(at - point - 1)
        java.lang.Double.valueOf(if (isNegative) -number else number)
      } else {
        at = start
        val text = numberText()
        if (text == null) return null
        val number = java.lang.Double.parseDouble(text)
        if (number.isInfinite) null else java.lang.Double.valueOf(number)
      }
    }
  }

  /** A number of any size; null where it is none. */
  private def number(): java.math.BigDecimal = {
    val text = numberText()
    // The exponent of a BigDecimal has 32 bits.
    if (text == null || text.length > MOST_DIGITS || text.exists(c => c == 'e' || c == 'E')) null
    else new java.math.BigDecimal(text)
  }

  /** A number as it is written; null where it is none. */
  private def numberText(): String = {
    val start = at
    if (at < bytes.length && bytes(at) == '-') at += 1
    val first = at
    val count = skipDigits()
    if (count == 0 || count > 1 && bytes(first) == '0') return null
    if (at < bytes.length && bytes(at) == '.') {
      at += 1
      if (skipDigits() == 0) return null
    }
    if (at < bytes.length && (bytes(at) == 'e' || bytes(at) == 'E')) {
      at += 1
      if (at < bytes.length && (bytes(at) == '-' || bytes(at) == '+')) at += 1
      if (skipDigits() == 0) return null
    }
    if (at - start > StrictJson.NUMBER_CHARACTERS) null else new String(bytes, start, at - start, ISO_8859_1)
  }

  /** Skip digits, and return how many they were. */
  private def skipDigits(): Int = {
    val start = at
    while (at < bytes.length && bytes(at) >= '0' && bytes(at) <= '9') at += 1
    at - start
  }

  /** A number without its point, which is the next byte; -1 if a double does not hold it exactly. */
  private def withDecimals(whole: Long): Long = {
    var number = whole
    val point = at
    if (bytes(at) != '.' || number > EXACT_NUMBER) return -1
    at += 1
    while (at < bytes.length && bytes(at) >= '0' && bytes(at) <= '9') {
      number = number * 10 + (bytes(at) - '0')
      if (number > EXACT_NUMBER) return -1
      at += 1
    }
    val decimals = at - point - 1
    if (decimals == 0 || decimals > EXACT_POWERS || isNumberGoingOn) -1 else number
  }

  /** The digits here as a number; -1 where there are none, more than 18, or a zero before others. */
  private def digits(): Long = {
    val start = at
    var number = 0L
    while (at < bytes.length && bytes(at) >= '0' && bytes(at) <= '9') {
      // With more than 18 digits it is beyond 64 bits, and not used.
      number = number * 10 + (bytes(at) - '0')
      at += 1
    }
    val count = at - start
    if (count == 0 || count > LONG_DIGITS || count > 1 && bytes(start) == '0') -1 else number
  }

  /** Whether the number that was read has more than digits. */
  private def isNumberGoingOn: Boolean = at < bytes.length && {
    val byte = bytes(at)
    byte == '.' || byte == 'e' || byte == 'E'
  }

  private def isLiteral(literal: Array[Byte]): Boolean = {
    val is = java.util.Arrays.equals(
      bytes,
      at,
      math.min(at + literal.length, bytes.length),
      literal,
      0,
      literal.length
    )
    if (is) at += literal.length
    is
  }

  /** Skip the value that begins here. */
  private def skipValue(): Boolean = {
    // A bit for each open array or object: whether it is an object.
    val nesting = new java.util.BitSet
    var depth = 0
    while (true) {
      var isOpened = false
      val good = skipSpace() match {
        case '"' =>
          at += 1
          skipText()
        case '{' | '[' =>
          nesting.set(depth, bytes(at) == '{')
          depth += 1
          at += 1
          isOpened = true
          depth < MOST_NESTED
        case 't' => isLiteral(TRUE)
        case 'f' => isLiteral(FALSE)
        case 'n' => isLiteral(NULL)
        case _ => double() != null
      }
      if (!good) return false
      // After a value: the ends of what it is the last value of, or the comma before the next one.
      var isNext = false
      while (!isNext) {
        if (depth == 0) return true
        val isObject = nesting.get(depth - 1)
        val byte = skipSpace()
        if (byte == (if (isObject) '}' else ']')) {
          depth -= 1
          at += 1
          isOpened = false
        } else {
          if (!isOpened) {
            if (byte != ',') return false
            at += 1
          }
          if (isObject && !skipName()) return false
          isNext = true
        }
      }
    }
    false
  }

  /** Skip the name of an undeclared member, and the colon. */
  private def skipName(): Boolean = {
    if (skipSpace() != '"') return false
    at += 1
    val start = at
    val good = skipText() && !hasEscapes && at - start <= StrictJson.NAME_CHARACTERS && skipSpace() == ':'
    at += 1
    good
  }

  /** Skip a text from after its quote to after its end. False for what JSON or UTF-8 does not allow. */
  private def skipText(): Boolean = {
    hasEscapes = false
    while (true) {
      if (IS_LITTLE)
        while (at + 8 <= bytes.length && isPlain(Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + at))) at += 8
      if (at >= bytes.length) return false
      val byte = bytes(at)
      if (byte == '"') {
        at += 1
        return true
      } else if (byte == '\\') {
        hasEscapes = true
        if (at + 1 >= bytes.length || bytes(at + 1) < 0) return false
        val isUnicode = bytes(at + 1) == 'u'
        if (if (isUnicode) hex(at + 2) < 0 else ESCAPES(bytes(at + 1)) == 0) return false
        at += (if (isUnicode) 6 else 2)
      } else if (byte < 0) {
        val length = Utf8.length(bytes, at, bytes.length)
        if (length == 0) return false
        at += length
      } else if (byte < ' ') return false
      else at += 1
    }
    false
  }

  /** Skip white space; return the byte after it, or END. */
  private def skipSpace(): Int = {
    while (at < bytes.length) {
      val byte = bytes(at)
      if (byte > ' ') return byte
      if (byte != ' ' && byte != '\n' && byte != '\r' && byte != '\t') return OTHER
      at += 1
    }
    END
  }
}

object JsonScanner {
  private val KINDS =
    Seq("string", "int", "uint", "float", "bool", "array", "map", "any", "decimal", "bigint", "ubigint")
  private final val STRING = 0
  private final val INT = 1
  private final val UINT = 2
  private final val FLOAT = 3
  private final val BOOL = 4
  private final val ARRAY = 5
  private final val MAP = 6
  private final val ANY = 7
  private final val DECIMAL = 8
  private final val BIGINT = 9
  private final val UBIGINT = 10

  // Results of `skipSpace` that are no byte of JSON: the end of the record, and a byte that JSON does not allow here.
  private final val END = -1000
  private final val OTHER = -1001

  private val TRUE = "true".getBytes(UTF_8)
  private val FALSE = "false".getBytes(UTF_8)
  private val NULL = "null".getBytes(UTF_8)

  // More than the longest number that is read as one: 76 digits before the point and 76 after it.
  private final val MOST_DIGITS = 160

  // The names of a record whose order is remembered: of more, as in a record of 100,000 names, they would fill the
  // memory.
  private final val MOST_LEARNED = 1000

  // Any number of 18 digits fits into 64 bits.
  private final val LONG_DIGITS = 18
  // The powers of ten, and the whole numbers, up to which a double holds each one exactly.
  private final val EXACT_POWERS = 22
  private final val EXACT_NUMBER = 1L << 53
  private val POWERS = Array.tabulate(EXACT_POWERS + 1)(n => java.lang.Double.parseDouble(s"1e$n"))

  // Skipped values only; the record and the paths to declared names are around them.
  private val MOST_NESTED = StrictJson.DEEPEST / 2

  /** By the byte after a backslash: what it stands for; 0 for none. */
  private val ESCAPES = {
    val found = new Array[Byte](128)
    Seq('"' -> '"', '\\' -> '\\', '/' -> '/', 'b' -> '\b', 'f' -> '\f', 'n' -> '\n', 'r' -> '\r', 't' -> '\t').foreach {
      case (escape, character) => found(escape) = character.toByte
    }
    found
  }

  private val IS_LITTLE = ByteOrder.nativeOrder == ByteOrder.LITTLE_ENDIAN
  private final val ONES = 0x0101010101010101L
  private final val HIGHS = 0x8080808080808080L

  /** Whether none of eight bytes is a quote, a backslash, a control character or of a character of several bytes. */
  private def isPlain(eight: Long): Boolean =
    ((eight | hasZero(eight ^ ONES * '"') | hasZero(eight ^ ONES * '\\') | (eight - ONES * ' ')) & HIGHS) == 0

  /** The highest bit of a byte is set if it is the lowest zero byte; of those above it perhaps, too. */
  private def hasZero(eight: Long): Long = (eight - ONES) & ~eight

  /** Write a character in UTF-8; return the position after it. */
  private def put(found: Array[Byte], to: Int, point: Int): Int = {
    if (point < 0x80) {
      found(to) = point.toByte
      to + 1
    } else if (point < 0x800) {
      found(to) = (0xc0 | point >> 6).toByte
      found(to + 1) = (0x80 | point & 0x3f).toByte
      to + 2
    } else if (point < 0x10000) {
      found(to) = (0xe0 | point >> 12).toByte
      found(to + 1) = (0x80 | point >> 6 & 0x3f).toByte
      found(to + 2) = (0x80 | point & 0x3f).toByte
      to + 3
    } else {
      found(to) = (0xf0 | point >> 18).toByte
      found(to + 1) = (0x80 | point >> 12 & 0x3f).toByte
      found(to + 2) = (0x80 | point >> 6 & 0x3f).toByte
      found(to + 3) = (0x80 | point & 0x3f).toByte
      to + 4
    }
  }

  /** A member of an object: its name, the field that takes its value (-1: none), and the declared names inside it. */
  private final class Member(val name: Array[Byte], val field: Int, val isAmbiguous: Boolean, val members: Members) {

    /** The member that came after this one in the last record. */
    var next: Member = _

    /** Whether this name and a quote begin at a position. */
    def isAt(bytes: Array[Byte], position: Int): Boolean = {
      val end = position + name.length
      end < bytes.length && bytes(end) == '"' && java.util.Arrays.equals(bytes, position, end, name, 0, name.length)
    }
  }

  /** The declared members of an object. */
  private final class Members(node: Node) {

    /** Stands before the first member. */
    val first = new Member(Array.empty, -1, false, null)

    private val byName = new java.util.HashMap[UTF8String, Member]()
    node.foreach { (name, child) =>
      val takers = child.takers
      // Several fields take the value, or the name cannot be compared with what stands in JSON, where it has escapes.
      val isAmbiguous = takers.length > 1 || name.exists(c => c < ' ' || c == '"' || c == '\\')
      val members = if (child.hasChildren) new Members(child) else null
      val key = UTF8String.fromString(name)
      byName.put(key, new Member(key.getBytes, takers.headOption.fold(-1)(_.index), isAmbiguous, members))
    }

    /** The member of a name between two positions; a new one that no field takes for an undeclared name. */
    def find(bytes: Array[Byte], start: Int, end: Int): Member = {
      val name = java.util.Arrays.copyOfRange(bytes, start, end)
      val found = byName.get(UTF8String.fromBytes(name))
      if (found != null) found else new Member(name, -1, false, null)
    }
  }
}
