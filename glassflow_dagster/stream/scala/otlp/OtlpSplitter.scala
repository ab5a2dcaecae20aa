package glassflow

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayData, GenericArrayData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Splits a record whose value is an export request into its events.
  *
  * The first element stands for the record itself, so that records and the bytes of their events can be counted: its
  * item is MARK, and it is dropped as 'record'. Each other element is an event, with its index in the request; or, with
  * the item WHOLE_RECORD, the record's own value: one that is no request (with the problem), or has no events (dropped
  * as 'filtered'), or is an event already.
  *
  * @param spec
  *   JSON: {"signal": logs, metrics or traces, "format": "otlp_proto" or "otlp_json"}
  */
class OtlpSplitter(spec: String) extends Serializable {
  import OtlpSplitter._

  private val (signal, isJson) = {
    val node = new ObjectMapper().readTree(spec)
    (node.get("signal").asText, node.get("format").asText == "otlp_json")
  }

  // Each task has a splitter of its own.
  @transient private lazy val request = OtlpSchema.request(signal)
  @transient private lazy val json = new OtlpJson(request)
  @transient private lazy val flattener = OtlpFlattener.of(signal)

  /** Split a value, null for a record without one. isEvent: it is an event already, a replayed one. */
  def split(value: Array[Byte], isEvent: Boolean): ArrayData =
    if (value == null || isEvent) elements(wholeRecord(value))
    else
      try {
        val events = flattener.flatten(new OtlpMessage(request, read(value)))
        if (events.isEmpty) elements(wholeRecord(value, dropReason = FILTERED))
        else {
          val rows = new Array[Any](events.length + 1)
          rows(0) = mark(events.iterator.map(_.json.length).sum)
          events.indices.foreach(i => rows(i + 1) = row(i, events(i).json, null, events(i).problem))
          new GenericArrayData(rows)
        }
      } catch {
        case refusal: Refusal => elements(wholeRecord(value, problem = refusal.getMessage))
        // No bytes are known that lead here; if there are, they must not end a pipeline.
        case error @ (_: ArithmeticException | _: java.time.DateTimeException | _: IndexOutOfBoundsException |
            _: ClassCastException | _: IllegalArgumentException | _: NegativeArraySizeException |
            _: NullPointerException | _: MatchError) =>
          elements(wholeRecord(value, problem = s"the request cannot be read: $error"))
      }

  /** The bytes and the number of a value's events, for Python. */
  def sizeOfEvents(value: Array[Byte]): java.util.List[Int] = {
    val rows = split(value, isEvent = false)
    java.util.List.of(rows.getStruct(0, FIELDS).getInt(SIZE), rows.numElements() - 1)
  }

  private def read(value: Array[Byte]): Array[Any] =
    if (isJson) json.read(value)
    else {
      val found = new Array[Any](request.fields.length)
      ProtobufRecords.parse(new ProtobufInput(value), request, found, null, 0)
      // Otherwise a message of another kind, whose fields are all unknown here, would be a request without events.
      if (value.nonEmpty && found.head == null) throw OtlpSchema.anotherRequest(request.fields.head.name)
      found
    }
}

object OtlpSplitter {

  /** The item of the element that stands for the record. */
  final val MARK = -2

  /** The item of a record's own value. */
  final val WHOLE_RECORD = -1

  /** The most bytes of a request's events as JSON: each has the attributes of its resource, so that a few bytes of a
    * request may become many. As an event has more than 64 bytes, there are less than 2^20 of them, so that an event's
    * index and its record's offset fit into 64 bits (dedup_in_scala.py).
    */
  final val MOST_BYTES = 64L * 1024 * 1024

  private val RECORD = "record"
  private val FILTERED = "filtered"

  // An Int, as there are at most MOST_BYTES.
  private def mark(bytes: Int): InternalRow = row(MARK, null, RECORD, null, bytes)

  val TYPE: ArrayType = ArrayType(
    new StructType()
      .add("item", IntegerType, nullable = false)
      .add("value", BinaryType)
      .add("split_drop_reason", StringType)
      .add("split_error", StringType)
      .add("split_size", IntegerType),
    containsNull = false
  )

  private final val FIELDS = 5
  private final val VALUE = 1
  private final val SIZE = 4

  private def wholeRecord(value: Array[Byte], dropReason: String = null, problem: String = null): InternalRow =
    row(WHOLE_RECORD, value, dropReason, problem)

  private def elements(only: InternalRow): ArrayData =
    new GenericArrayData(Array[Any](mark(if (only.isNullAt(VALUE)) 0 else only.getBinary(VALUE).length), only))

  private def row(item: Int, value: Array[Byte], dropReason: String, problem: String, size: Any = null): InternalRow =
    new GenericInternalRow(
      Array[Any](item, value, UTF8String.fromString(dropReason), UTF8String.fromString(problem), size)
    )
}
