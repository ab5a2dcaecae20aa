package glassflow

/** Reads Protobuf's wire format (Protocol Buffers, "Encoding") from bytes that nobody has checked: each length is
  * compared with what is left before anything is done with it.
  *
  * To be used by one thread. All methods throw Refusal.
  */
final class ProtobufInput(val bytes: Array[Byte]) {
  import ProtobufInput._

  /** The position of the next byte, and that of the end of the message that is read. */
  var at = 0
  var end: Int = bytes.length

  // How many places for fields the messages in this value may still have: a message of two bytes could have thousands.
  private var places = bytes.length.toLong * PLACES_A_BYTE + FIRST_PLACES

  def isAtEnd: Boolean = at >= end

  /** Count the places of a message that is entered. */
  def spend(count: Int): Unit = {
    places -= count
    if (places < 0) throw new Refusal(s"invalid Protobuf: too many nearly empty messages, before byte $at")
  }

  /** A number of up to 64 bits: groups of 7 bits, the lowest first. */
  def varint(): Long = {
    var number, shift = 0L
    while (shift < MOST_SHIFT) {
      val byte = bytes(skip(1))
      number |= (byte & 0x7fL) << shift
      if (byte >= 0) return number
      shift += 7
    }
    throw new Refusal(s"invalid Protobuf: a number of more than ten bytes, before byte $at")
  }

  def fixed32(): Int = {
    val i = skip(4)
    (bytes(i) & 0xff) | (bytes(i + 1) & 0xff) << 8 | (bytes(i + 2) & 0xff) << 16 | bytes(i + 3) << 24
  }

  def fixed64(): Long = (fixed32() & 0xffffffffL) | fixed32().toLong << 32

  /** The length of a text, of bytes or of a message, which follow. */
  def length(): Int = {
    val length = varint()
    if (length < 0 || length > end - at)
      throw new Refusal(s"invalid Protobuf: $length bytes are announced and ${end - at} are left, before byte $at")
    length.toInt
  }

  /** Skip bytes, and return the position of the first. */
  def skip(count: Int): Int = {
    if (count > end - at)
      throw new Refusal(s"invalid Protobuf: the value or a message in it ends too early, at byte $end")
    at += count
    at - count
  }

  /** Skip the value of a field of this number and wire type. */
  def skipField(number: Int, wireType: Int, depth: Int): Unit = wireType match {
    case VARINT => varint()
    case FIXED64 => skip(8)
    case DELIMITED => skip(length())
    case GROUP =>
      if (depth >= SchemaDecoder.DEEPEST) throw new Refusal(s"invalid Protobuf: groups more than $depth deep")
      var tag = this.tag()
      while ((tag & WIRE_TYPE) != GROUP_END) {
        skipField(tag >>> NUMBER, tag & WIRE_TYPE, depth + 1)
        tag = this.tag()
      }
      if (tag >>> NUMBER != number) throw new Refusal(s"invalid Protobuf: a group ends as another one, before byte $at")
    case FIXED32 => skip(4)
    case other => throw new Refusal(s"invalid Protobuf: wire type $other, before byte $at")
  }

  /** The number of the next field, shifted, and its wire type. */
  def tag(): Int = {
    val tag = varint()
    if (tag >>> 32 != 0 || tag >>> NUMBER == 0)
      throw new Refusal(s"invalid Protobuf: no field's number, before byte $at")
    tag.toInt
  }
}

object ProtobufInput {
  private final val MOST_SHIFT = 70L
  private final val PLACES_A_BYTE = 16
  private final val FIRST_PLACES = 1000000L
  final val NUMBER = 3
  final val WIRE_TYPE = 7
  final val VARINT = 0
  final val FIXED64 = 1
  final val DELIMITED = 2
  final val GROUP = 3
  final val GROUP_END = 4
  final val FIXED32 = 5
}
