package glassflow

/** OpenTelemetry's export requests, as far as they become fields of events (opentelemetry-proto 1.x). A request and the
  * message `TracesData` (`LogsData`, `MetricsData`), which collectors write to files, are the same on the wire.
  */
object OtlpSchema {

  /** The message of a request, by the signal: logs, metrics or traces. */
  def request(signal: String): MessageType = types.message(REQUESTS(signal))

  private val REQUESTS = Map("logs" -> "LogsData", "metrics" -> "MetricsData", "traces" -> "TracesData")

  // Named as in OpenTelemetry's own files, since a request in JSON has these names in camel case.
  private val PROTO = """
    syntax = "proto3";
    package otlp;
    message AnyValue { oneof value {
      string string_value = 1; bool bool_value = 2; int64 int_value = 3; double double_value = 4;
      ArrayValue array_value = 5; KeyValueList kvlist_value = 6; bytes bytes_value = 7; } }
    message ArrayValue { repeated AnyValue values = 1; }
    message KeyValueList { repeated KeyValue values = 1; }
    message KeyValue { string key = 1; AnyValue value = 2; }
    message Resource { repeated KeyValue attributes = 1; }
    message InstrumentationScope { string name = 1; string version = 2; repeated KeyValue attributes = 3; }

    message TracesData { repeated ResourceSpans resource_spans = 1; }
    message ResourceSpans { Resource resource = 1; repeated ScopeSpans scope_spans = 2; }
    message ScopeSpans { InstrumentationScope scope = 1; repeated Span spans = 2; }
    message Span {
      bytes trace_id = 1; bytes span_id = 2; string trace_state = 3; bytes parent_span_id = 4; fixed32 flags = 16;
      string name = 5; SpanKind kind = 6; fixed64 start_time_unix_nano = 7; fixed64 end_time_unix_nano = 8;
      repeated KeyValue attributes = 9; uint32 dropped_attributes_count = 10;
      repeated Event events = 11; uint32 dropped_events_count = 12;
      repeated Link links = 13; uint32 dropped_links_count = 14; Status status = 15;
    }
    enum SpanKind { SPAN_KIND_UNSPECIFIED = 0; SPAN_KIND_INTERNAL = 1; SPAN_KIND_SERVER = 2; SPAN_KIND_CLIENT = 3;
      SPAN_KIND_PRODUCER = 4; SPAN_KIND_CONSUMER = 5; }
    message Event { fixed64 time_unix_nano = 1; string name = 2; repeated KeyValue attributes = 3;
      uint32 dropped_attributes_count = 4; }
    message Link { bytes trace_id = 1; bytes span_id = 2; string trace_state = 3; repeated KeyValue attributes = 4;
      uint32 dropped_attributes_count = 5; }
    message Status { string message = 2; StatusCode code = 3; }
    enum StatusCode { STATUS_CODE_UNSET = 0; STATUS_CODE_OK = 1; STATUS_CODE_ERROR = 2; }

    message LogsData { repeated ResourceLogs resource_logs = 1; }
    message ResourceLogs { Resource resource = 1; repeated ScopeLogs scope_logs = 2; }
    message ScopeLogs { InstrumentationScope scope = 1; repeated LogRecord log_records = 2; }
    message LogRecord {
      fixed64 time_unix_nano = 1; fixed64 observed_time_unix_nano = 11; SeverityNumber severity_number = 2;
      string severity_text = 3; AnyValue body = 5; repeated KeyValue attributes = 6;
      uint32 dropped_attributes_count = 7; fixed32 flags = 8; bytes trace_id = 9; bytes span_id = 10;
    }
    enum SeverityNumber { SEVERITY_NUMBER_UNSPECIFIED = 0;
      SEVERITY_NUMBER_TRACE = 1; SEVERITY_NUMBER_TRACE2 = 2; SEVERITY_NUMBER_TRACE3 = 3; SEVERITY_NUMBER_TRACE4 = 4;
      SEVERITY_NUMBER_DEBUG = 5; SEVERITY_NUMBER_DEBUG2 = 6; SEVERITY_NUMBER_DEBUG3 = 7; SEVERITY_NUMBER_DEBUG4 = 8;
      SEVERITY_NUMBER_INFO = 9; SEVERITY_NUMBER_INFO2 = 10; SEVERITY_NUMBER_INFO3 = 11; SEVERITY_NUMBER_INFO4 = 12;
      SEVERITY_NUMBER_WARN = 13; SEVERITY_NUMBER_WARN2 = 14; SEVERITY_NUMBER_WARN3 = 15; SEVERITY_NUMBER_WARN4 = 16;
      SEVERITY_NUMBER_ERROR = 17; SEVERITY_NUMBER_ERROR2 = 18; SEVERITY_NUMBER_ERROR3 = 19; SEVERITY_NUMBER_ERROR4 = 20;
      SEVERITY_NUMBER_FATAL = 21; SEVERITY_NUMBER_FATAL2 = 22; SEVERITY_NUMBER_FATAL3 = 23; SEVERITY_NUMBER_FATAL4 = 24;
    }

    message MetricsData { repeated ResourceMetrics resource_metrics = 1; }
    message ResourceMetrics { Resource resource = 1; repeated ScopeMetrics scope_metrics = 2; }
    message ScopeMetrics { InstrumentationScope scope = 1; repeated Metric metrics = 2; }
    message Metric { string name = 1; string description = 2; string unit = 3; oneof data {
      Gauge gauge = 5; Sum sum = 7; Histogram histogram = 9; ExponentialHistogram exponential_histogram = 10;
      Summary summary = 11; } }
    enum AggregationTemporality { AGGREGATION_TEMPORALITY_UNSPECIFIED = 0; AGGREGATION_TEMPORALITY_DELTA = 1;
      AGGREGATION_TEMPORALITY_CUMULATIVE = 2; }
    message Gauge { repeated NumberDataPoint data_points = 1; }
    message Sum { repeated NumberDataPoint data_points = 1; AggregationTemporality aggregation_temporality = 2;
      bool is_monotonic = 3; }
    message Histogram { repeated HistogramDataPoint data_points = 1;
      AggregationTemporality aggregation_temporality = 2; }
    message ExponentialHistogram { repeated ExponentialHistogramDataPoint data_points = 1;
      AggregationTemporality aggregation_temporality = 2; }
    message Summary { repeated SummaryDataPoint data_points = 1; }
    message NumberDataPoint { repeated KeyValue attributes = 7; fixed64 start_time_unix_nano = 2;
      fixed64 time_unix_nano = 3; oneof value { double as_double = 4; sfixed64 as_int = 6; } uint32 flags = 8; }
    message HistogramDataPoint { repeated KeyValue attributes = 9; fixed64 start_time_unix_nano = 2;
      fixed64 time_unix_nano = 3; fixed64 count = 4; optional double sum = 5; repeated fixed64 bucket_counts = 6;
      repeated double explicit_bounds = 7; uint32 flags = 10; optional double min = 11; optional double max = 12; }
    message ExponentialHistogramDataPoint { repeated KeyValue attributes = 1; fixed64 start_time_unix_nano = 2;
      fixed64 time_unix_nano = 3; fixed64 count = 4; optional double sum = 5; uint32 flags = 10;
      optional double min = 12; optional double max = 13; }
    message SummaryDataPoint { repeated KeyValue attributes = 7; fixed64 start_time_unix_nano = 2;
      fixed64 time_unix_nano = 3; fixed64 count = 4; double sum = 5; uint32 flags = 8; }
  """

  /** The refusal of a value that has members, but not that of the signal's requests. */
  def anotherRequest(member: String): Refusal =
    new Refusal(s"invalid OTLP: it has no $member, so it is a request of another signal, or none")

  private lazy val types = new ProtobufTypes(Seq(PROTO))
}

/** The values of a message, by the names of its fields. */
final class OtlpMessage(kind: MessageType, values: Array[Any]) {

  def has(name: String): Boolean = values != null && found(name) != null

  /** A text; empty where there is none. */
  def text(name: String): org.apache.spark.unsafe.types.UTF8String = found(name) match {
    case text: org.apache.spark.unsafe.types.UTF8String => text
    case _ => org.apache.spark.unsafe.types.UTF8String.EMPTY_UTF8
  }

  /** A whole number, or an enum's; 0 where there is none. */
  def long(name: String): Long = found(name) match {
    case number: java.lang.Long => number
    case _ => 0
  }

  /** 0 where there is none. */
  def double(name: String): Double = found(name) match {
    case number: java.lang.Double => number
    case _ => 0
  }

  /** No bytes where there are none. */
  def bytes(name: String): Array[Byte] = found(name) match {
    case bytes: Array[Byte] => bytes
    case _ => Array.emptyByteArray
  }

  /** A message; one without any value where there is none. */
  def message(name: String): OtlpMessage = {
    val kind = field(name).kind.asInstanceOf[MessageType]
    new OtlpMessage(kind, found(name).asInstanceOf[Array[Any]])
  }

  /** The messages of a repeated field. */
  def messages(name: String): Iterator[OtlpMessage] = {
    val kind = field(name).kind.asInstanceOf[MessageType]
    list(name).map(values => new OtlpMessage(kind, values.asInstanceOf[Array[Any]]))
  }

  /** The values of a repeated field. */
  def list(name: String): Iterator[Any] = {
    import scala.jdk.CollectionConverters._
    found(name) match {
      case list: java.util.ArrayList[_] => list.iterator.asScala
      case _ => Iterator.empty
    }
  }

  private def found(name: String): Any = {
    val index = field(name).index
    if (values == null) null else values(index)
  }

  private def field(name: String): ProtobufField = {
    val fields = kind.fields
    var i = 0
    while (fields(i).name != name) i += 1
    fields(i)
  }
}
