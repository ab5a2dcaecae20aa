package glassflow

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.unsafe.types.UTF8String

/** An event of an export request: a JSON object with GlassFlow's names of fields. problem: why it cannot be decoded;
  * null for a good one.
  */
final case class OtlpEvent(json: Array[Byte], problem: String)

/** Flattens export requests: an event for each span, log record, or data point of a metric, with the attributes of its
  * resource and scope. Names, texts and defaults are those of GlassFlow's receiver.
  *
  * To be used by one thread. `flatten` throws Refusal.
  */
abstract class OtlpFlattener {
  private val out = new JsonText
  private var isFirst = true
  private var problem: String = _
  private var bytes = 0L
  protected val values = new OtlpValues
  protected val events = new ArrayBuffer[OtlpEvent]

  /** The events of a request. */
  def flatten(request: OtlpMessage): ArrayBuffer[OtlpEvent] = {
    events.clear()
    bytes = 0
    readAll(request)
    events
  }

  protected def readAll(request: OtlpMessage): Unit

  /** Read each scope of a request.
    *
    * @param read
    *   is given the scope, and what an event has of it and its resource, as JSON: made at the first event, as a request
    *   may have many scopes without any
    */
  protected def foreachScope(request: OtlpMessage, resources: String, scopes: String)(
      read: (OtlpMessage, => Array[Byte]) => Unit
  ): Unit =
    request.messages(resources).foreach { ofResource =>
      lazy val resource = attributesOf(ofResource.message("resource"))
      ofResource.messages(scopes).foreach { ofScope =>
        lazy val common = commonOf(resource, ofScope.message("scope"))
        read(ofScope, common)
      }
    }

  /** The members that the events of a scope share. resource: the attributes of its resource. */
  private def commonOf(resource: Array[Byte], scope: OtlpMessage): Array[Byte] = {
    beginEvent()
    raw("resource_attributes", resource)
    text("scope_name", scope.text("name"))
    text("scope_version", scope.text("version"))
    attributes("scope_attributes", scope)
    out.toText.getBytes.drop(1)
  }

  protected def beginEvent(): Unit = {
    out.clear()
    out.add('{')
    isFirst = true
    problem = null
  }

  /** End the event. common: the members of its scope. */
  protected def endEvent(common: Array[Byte]): Unit = {
    out.add(',')
    out.addBytes(common)
    out.add('}')
    val json = out.toText.getBytes
    bytes += json.length
    if (bytes > OtlpSplitter.MOST_BYTES)
      throw new Refusal(s"the request's events have more than ${OtlpSplitter.MOST_BYTES} bytes as JSON")
    events += OtlpEvent(json, problem)
  }

  /** Begin a member. */
  protected def begin(name: String): Unit = {
    if (!isFirst) out.add(',')
    isFirst = false
    out.add('"')
    out.add(name)
    out.add("\":")
  }

  protected def raw(field: String, json: Array[Byte]): Unit = {
    begin(field)
    out.addBytes(json)
  }

  protected def text(field: String, value: UTF8String): Unit = {
    begin(field)
    out.quote(value)
  }

  /** Add a text without characters that JSON escapes. */
  protected def word(field: String, value: String): Unit = {
    begin(field)
    out.add('"')
    out.add(value)
    out.add('"')
  }

  protected def traceId(owner: OtlpMessage): Unit =
    word("trace_id", OtlpValues.id(owner.bytes("trace_id"), OtlpFlattener.TRACE_ID_BYTES, "trace_id"))

  protected def spanId(name: String, owner: OtlpMessage): Unit =
    word(name, OtlpValues.id(owner.bytes(name), OtlpFlattener.SPAN_ID_BYTES, name))

  protected def time(field: String, nanos: Long): Unit = word(field, values.time(nanos))

  protected def number(field: String, digits: String): Unit = {
    begin(field)
    out.add(digits)
  }

  protected def unsigned(field: String, number: Long): Unit =
    this.number(field, java.lang.Long.toUnsignedString(number))

  protected def nothing(field: String): Unit = number(field, "null")

  protected def double(field: String, number: Double): Unit = {
    begin(field)
    element(field, number)
  }

  /** Add an element of a list of this name, or its value. */
  protected def element(field: String, number: Double): Unit = {
    if ((number.isNaN || number.isInfinite) && problem == null)
      problem = s"field '$field' is $number, which is no number of JSON"
    OtlpValues.number(out, number)
  }

  protected def list[T](field: String, values: Iterator[T])(write: T => Unit): Unit = {
    begin(field)
    OtlpValues.list(out, values)(write)
  }

  protected def write(ascii: String): Unit = out.add(ascii)

  /** Add an object inside a list. */
  protected def member(write: => Unit): Unit = {
    out.add('{')
    isFirst = true
    write
    out.add('}')
    isFirst = false
  }

  protected def attributes(field: String, owner: OtlpMessage): Unit = {
    begin(field)
    values.attributes(out, owner.messages("attributes"))
  }

  private def attributesOf(owner: OtlpMessage): Array[Byte] = {
    val json = new JsonText
    values.attributes(json, owner.messages("attributes"))
    json.toText.getBytes
  }
}

object OtlpFlattener {
  private final val TRACE_ID_BYTES = 16
  private final val SPAN_ID_BYTES = 8

  /** The flattener of a signal: logs, metrics or traces. */
  def of(signal: String): OtlpFlattener = signal match {
    case "logs" => new OtlpLogs
    case "metrics" => new OtlpMetrics
    case "traces" => new OtlpTraces
  }
}

final class OtlpTraces extends OtlpFlattener {
  private val KINDS = Array("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
  private val STATUSES = Array("UNSET", "OK", "ERROR")

  override protected def readAll(request: OtlpMessage): Unit =
    foreachScope(request, "resource_spans", "scope_spans")((scope, common) =>
      scope.messages("spans").foreach(readSpan(_, common))
    )

  private def readSpan(span: OtlpMessage, common: Array[Byte]): Unit = {
    val (start, end, status) =
      (span.long("start_time_unix_nano"), span.long("end_time_unix_nano"), span.message("status"))
    beginEvent()
    traceId(span)
    spanId("span_id", span)
    spanId("parent_span_id", span)
    text("trace_state", span.text("trace_state"))
    unsigned("flags", span.long("flags"))
    text("name", span.text("name"))
    word("kind", called(KINDS, span.long("kind")))
    time("start_timestamp", start)
    time("end_timestamp", end)
    unsigned("duration_ns", end - start)
    word("status_code", called(STATUSES, status.long("code")))
    text("status_message", status.text("message"))
    Seq("dropped_attributes_count", "dropped_events_count", "dropped_links_count").foreach(count =>
      unsigned(count, span.long(count))
    )
    list("events", span.messages("events"))(event =>
      member {
        time("timestamp", event.long("time_unix_nano"))
        text("name", event.text("name"))
        attributes("attributes", event)
        unsigned("dropped_attributes_count", event.long("dropped_attributes_count"))
      }
    )
    list("links", span.messages("links"))(link =>
      member {
        traceId(link)
        spanId("span_id", link)
        text("trace_state", link.text("trace_state"))
        attributes("attributes", link)
        unsigned("dropped_attributes_count", link.long("dropped_attributes_count"))
      }
    )
    attributes("attributes", span)
    endEvent(common)
  }

  /** An enum's word; that of 0 for a number that has none. */
  private def called(words: Array[String], number: Long): String =
    words(if (number > 0 && number < words.length) number.toInt else 0)
}

final class OtlpLogs extends OtlpFlattener {
  override protected def readAll(request: OtlpMessage): Unit =
    foreachScope(request, "resource_logs", "scope_logs")((scope, common) =>
      scope.messages("log_records").foreach(readRecord(_, common))
    )

  private def readRecord(record: OtlpMessage, common: Array[Byte]): Unit = {
    beginEvent()
    time("timestamp", record.long("time_unix_nano"))
    time("observed_timestamp", record.long("observed_time_unix_nano"))
    // Of 32 bits, unsigned.
    unsigned("severity_number", record.long("severity_number") & 0xffffffffL)
    text("severity_text", record.text("severity_text"))
    text("body", values.text(record.message("body")))
    traceId(record)
    spanId("span_id", record)
    unsigned("flags", record.long("flags"))
    unsigned("dropped_attributes_count", record.long("dropped_attributes_count"))
    attributes("attributes", record)
    endEvent(common)
  }
}

final class OtlpMetrics extends OtlpFlattener {
  private val TEMPORALITIES = Map(1L -> "DELTA", 2L -> "CUMULATIVE")
  // The parts of a metric that have data points, and the metric's type then.
  private val TYPES = Seq(
    "gauge" -> "gauge",
    "sum" -> "sum",
    "histogram" -> "histogram",
    "exponential_histogram" -> "exp_histogram",
    "summary" -> "summary"
  )

  override protected def readAll(request: OtlpMessage): Unit =
    foreachScope(request, "resource_metrics", "scope_metrics")((scope, common) =>
      scope.messages("metrics").foreach { metric =>
        TYPES.find { case (part, _) => metric.has(part) }.foreach { case (part, kind) =>
          val data = metric.message(part)
          data.messages("data_points").foreach(readPoint(metric, kind, data, _, common))
        }
      }
    )

  private def readPoint(
      metric: OtlpMessage,
      kind: String,
      data: OtlpMessage,
      point: OtlpMessage,
      common: Array[Byte]
  ): Unit = {
    val (isNumber, isHistogram) = (kind == "gauge" || kind == "sum", kind == "histogram" || kind == "exp_histogram")
    beginEvent()
    time("timestamp", point.long("time_unix_nano"))
    time("start_timestamp", point.long("start_time_unix_nano"))
    text("metric_name", metric.text("name"))
    text("metric_description", metric.text("description"))
    text("metric_unit", metric.text("unit"))
    word("metric_type", kind)
    if (kind == "sum" || isHistogram)
      word(
        "aggregation_temporality",
        TEMPORALITIES.getOrElse(data.long("aggregation_temporality"), "UNSPECIFIED")
      )
    else nothing("aggregation_temporality")
    if (kind == "sum") number("is_monotonic", (data.long("is_monotonic") != 0).toString) else nothing("is_monotonic")
    unsigned("flags", point.long("flags"))
    if (isNumber && point.has("as_double")) double("value_double", point.double("as_double"))
    else nothing("value_double")
    if (isNumber && point.has("as_int")) number("value_int", point.long("as_int").toString) else nothing("value_int")
    if (isNumber) nothing("count") else unsigned("count", point.long("count"))
    // 0 without a sum, as in GlassFlow.
    if (isNumber) nothing("sum") else double("sum", point.double("sum"))
    Seq("min", "max").foreach(bound =>
      if (isHistogram && point.has(bound)) double(bound, point.double(bound)) else nothing(bound)
    )
    val buckets = if (kind == "histogram") point.list("bucket_counts") else Iterator.empty
    list("bucket_counts", buckets) { count => write(java.lang.Long.toUnsignedString(count.asInstanceOf[Long])) }
    val bounds = if (kind == "histogram") point.list("explicit_bounds") else Iterator.empty
    list("explicit_bounds", bounds)(bound => element("explicit_bounds", bound.asInstanceOf[Double]))
    attributes("attributes", point)
    endEvent(common)
  }
}
