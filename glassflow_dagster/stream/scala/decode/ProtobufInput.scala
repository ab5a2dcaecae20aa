package glassflow

/** Reads Protobuf's wire format (Protocol Buffers, "Encoding").
  *
  * To be used by one thread. All methods throw Refusal.
  */
final class ProtobufInput(override val bytes: Array[Byte]) extends EncodedInput("Protobuf") {
  import ProtobufInput._

  /** The end of the message that is read. */
  var end: Int = bytes.length
  override protected def tooShort: String = s"it or a message in it ends too early, at byte $end"

  // How many places for fields the messages in this value may still have: a message of two bytes could have thousands.
  private var places = bytes.length.toLong * PLACES_A_BYTE + FIRST_PLACES

  def isAtEnd: Boolean = left <= 0

  /** Count the places of a message that is entered. */
  def spend(count: Int): Unit = {
    places -= count
    if (places < 0) throw new Refusal(s"invalid Protobuf: too many nearly empty messages, before byte $at")
  }

  /** The length of a text, of bytes or of a message, which follow. */
  def length(): Int = announced(varint())

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
