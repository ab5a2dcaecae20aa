package glassflow

import java.util.Base64

import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.unsafe.types.UTF8String

/** The headers of a record as one JSON object of texts. */
object RecordHeaders {
  // The places in a header, STRUCT<key STRING, value BINARY>.
  private final val KEY = 0
  private final val VALUE = 1
  private final val FIELDS = 2

  /** Of several headers with one name the last one counts, as in Kafka's own `lastHeader`. A value that is not UTF-8 is
    * in base64; one that is missing is null.
    */
  def json(headers: ArrayData): UTF8String = {
    val last = new java.util.LinkedHashMap[UTF8String, Array[Byte]]()
    (0 until headers.numElements).foreach { i =>
      val header = headers.getStruct(i, FIELDS)
      last.put(header.getUTF8String(KEY), if (header.isNullAt(VALUE)) null else header.getBinary(VALUE))
    }
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
    val text = UTF8String.fromBytes(value)
    if (text.isValid) text else UTF8String.fromBytes(Base64.getEncoder.encode(value))
  }
}
