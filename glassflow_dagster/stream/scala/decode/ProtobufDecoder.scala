package glassflow

/** Decodes Protobuf messages to the declared fields, as strictly as StrictJson decodes JSON, and to the same columns.
  *
  * @param spec
  *   as of SchemaDecoder, with "message_type": the name of the message; null for the one that the indexes behind the
  *   schema id name, and without these the first of the schema
  */
class ProtobufDecoder(spec: String) extends SchemaDecoder(spec, "PROTOBUF") {
  import ProtobufDecoder._

  private val messageType: String = node.get("message_type").asText(null)

  @transient private lazy val ofGiven = new ProtobufTypes(Seq(given))
  @transient private lazy val ofRegistered = new OfRegistered(new ProtobufTypes(_))
  @transient private lazy val byMessage = new java.util.HashMap[String, ProtobufRecords]()
  // By the schema id and the indexes behind it.
  @transient private lazy val last = new LastStart[ProtobufRecords]

  override protected def read(
      value: Array[Byte],
      start: Int,
      id: Array[Byte],
      idEnd: Int,
      values: Array[Any]
  ): Unit = {
    val before = if (id == null) Array.emptyByteArray else id
    if (!last.begins(before)) {
      val path = if (id == null) NO_PATH else messagePath(id, idEnd)
      last.set(before, path.end, of(id, path.indexes))
    }
    last.reads.read(value, if (id eq value) last.length else start, values)
  }

  private def of(id: Array[Byte], path: Seq[Int]): ProtobufRecords = {
    val schemaId = if (id == null || registry == null) "" else SchemaId.text(id)
    val key = if (messageType == null) s"$schemaId ${path.mkString(".")}" else schemaId
    var found = byMessage.get(key)
    if (found == null) {
      val types = if (registry == null) ofGiven else ofRegistered.of(id)
      val message = if (messageType == null) types.message(path) else types.message(messageType)
      found = new ProtobufRecords(message, fields, root)
      byMessage.put(key, found)
    }
    found
  }
}

object ProtobufDecoder {
  // More than any schema nests its messages.
  private final val MOST_INDEXES = 100

  /** The indexes that Confluent's serializers write behind a schema id: their number, and the indexes themselves, as
    * numbers of Avro's kind; a number of 0 stands for the one index 0.
    */
  def messagePath(bytes: Array[Byte], from: Int): MessagePath = {
    val in = new AvroInput
    in.open(bytes, from)
    val indexes = in.int() match {
      case 0 => Seq(0)
      case count if count < 0 || count > MOST_INDEXES =>
        throw new Refusal(s"invalid Protobuf: $count indexes of a message")
      case count => Seq.fill(count)(in.int())
    }
    MessagePath(indexes, in.at)
  }

  /** end: the position behind the indexes. */
  final case class MessagePath(indexes: Seq[Int], end: Int)

  // Without a schema id: the first message.
  val NO_PATH = MessagePath(Seq(0), 0)
}
