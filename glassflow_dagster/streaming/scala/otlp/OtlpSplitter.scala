package glassflow

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayData, GenericArrayData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Splits a record whose value is an export request into its events.
  *
  * The first element stands for the record itself, so that records can be counted: its item is MARK, and it is dropped
  * as 'record'. Each other element is an event, with its index in the request; or, with the item UNDIVIDED, the
  * record's own value: one that is no request (with the problem), or has no events (dropped as 'filtered'), or is an
  * event already.
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
    if (value == null || isEvent) elements(undivided(value))
    else
      try {
        val events = flattener.flatten(new OtlpMessage(request, read(value)))
        if (events.isEmpty) elements(undivided(value, dropReason = FILTERED))
        else {
          val rows = new Array[Any](events.length + 1)
          rows(0) = MARK_ROW
          events.indices.foreach(i => rows(i + 1) = row(i, events(i).json, null, events(i).problem))
          new GenericArrayData(rows)
        }
      } catch {
        case refusal: Refusal => elements(undivided(value, problem = refusal.getMessage))
        // No bytes are known that lead here; if there are, they must not end a pipeline.
        case error @ (_: ArithmeticException | _: java.time.DateTimeException | _: IndexOutOfBoundsException |
            _: ClassCastException | _: IllegalArgumentException | _: NegativeArraySizeException |
            _: NullPointerException | _: MatchError) =>
          elements(undivided(value, problem = s"the request cannot be read: $error"))
      }

  /** The bytes and the number of a value's events, as Python is given them. */
  def sizeOfEvents(value: Array[Byte]): java.util.List[Long] = {
    val rows = split(value, isEvent = false)
    val events = (1 until rows.numElements()).map(rows.getStruct(_, TYPE.elementType.asInstanceOf[StructType].length))
    java.util.List.of(events.map(event => if (event.isNullAt(1)) 0L else event.getBinary(1).length.toLong).sum, events.length.toLong)
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
  final val UNDIVIDED = -1

  /** The most events of a request, so that an event's index and its record's offset fit into 64 bits (dedup.py). */
  final val MOST_EVENTS = 1000000

  /** The most bytes of a request's events as JSON: each has the attributes of its resource, so that a few bytes of a
    * request may become many.
    */
  final val MOST_BYTES = 64L * 1024 * 1024

  private val RECORD = "record"
  private val FILTERED = "filtered"
  private val MARK_ROW = row(MARK, null, RECORD, null)

  val TYPE: ArrayType = ArrayType(
    new StructType()
      .add("item", IntegerType, nullable = false)
      .add("value", BinaryType)
      .add("split_drop_reason", StringType)
      .add("split_error", StringType),
    containsNull = false
  )

  private def undivided(value: Array[Byte], dropReason: String = null, problem: String = null): InternalRow =
    row(UNDIVIDED, value, dropReason, problem)

  private def elements(only: InternalRow): ArrayData = new GenericArrayData(Array[Any](MARK_ROW, only))

  private def row(item: Int, value: Array[Byte], dropReason: String, problem: String): InternalRow =
    new GenericInternalRow(
      Array[Any](item, value, UTF8String.fromString(dropReason), UTF8String.fromString(problem))
    )
}
