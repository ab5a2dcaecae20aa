package glassflow

import java.util.Base64

import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.types.{ArrayType, BinaryType, StringType, StructField, StructType}
import org.apache.spark.unsafe.types.UTF8String

/** The headers of a record. Of several with one name the last one counts, as in Kafka's own `lastHeader`. */
object RecordHeaders {

  /** The type of all headers of a record. */
  val TYPE: ArrayType =
    ArrayType(StructType(Seq(StructField("key", StringType), StructField("value", BinaryType))))

  // The places in a header.
  private final val KEY = 0
  private final val VALUE = 1
  private final val FIELDS = 2

  /** The value of the header of a name; null where it has none, and without such a header. headers: may be null. */
  def last(headers: ArrayData, name: UTF8String): Array[Byte] = {
    var found: Array[Byte] = null
    if (headers != null) foreach(headers)((key, value) => if (name == key) found = value)
    found
  }

  private def foreach(headers: ArrayData)(see: (UTF8String, Array[Byte]) => Unit): Unit = {
    var i = 0
    while (i < headers.numElements) {
      val header = headers.getStruct(i, FIELDS)
      see(header.getUTF8String(KEY), if (header.isNullAt(VALUE)) null else header.getBinary(VALUE))
      i += 1
    }
  }

  /** All headers as one JSON object of texts. A value that is not UTF-8 is in base64; one that is missing is null. */
  def json(headers: ArrayData): UTF8String = {
    val last = new java.util.LinkedHashMap[UTF8String, Array[Byte]]()
    foreach(headers)((key, value) => last.put(key, value))
    val out = new JsonText
    out.add('{')
    last.forEach { (name, value) =>
      if (!(name eq last.keySet.iterator.next)) out.add(',')
      out.quote(name)
      out.add(':')
      if (value == null) out.add("null") else out.quote(text(value))
    }
    out.add('}')
    out.toText
  }

  private def text(value: Array[Byte]): UTF8String = {
    val text = Utf8.text(value)
    if (text != null) text else UTF8String.fromBytes(Base64.getEncoder.encode(value))
  }
}
