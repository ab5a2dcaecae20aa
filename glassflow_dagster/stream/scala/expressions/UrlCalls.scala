package glassflow

import java.util.LinkedHashMap

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.spark.unsafe.types.UTF8String

/** GlassFlow's helpers for URLs. */
object UrlCalls {
  import Call.Build

  private val AND = UTF8String.fromString("&")
  private val SEMICOLON = UTF8String.fromString(";")
  private val EQUALS = UTF8String.fromString("=")

  private val PATH_TYPES = Seq("/g/collect" -> "collect", "/_/set_cookie" -> "set_cookie").map { case (part, name) =>
    UTF8String.fromString(part) -> UTF8String.fromString(name)
  }
  private val UNKNOWN = UTF8String.fromString("unknown")

  val HELPERS: Map[String, Build] = Map(
    "urlDecode" -> (call =>
      e => {
        val text = call.textOrNull(e, 0)
        if (text == null) UTF8String.EMPTY_UTF8 else decoded(call, text)
      }
    ),
    "parseQuery" -> (call =>
      e => {
        val text = call.textOrNull(e, 0)
        if (text == null) asObject(Nil) else asObject(parameters(call, text))
      }
    ),
    "getQueryParam" -> parameter,
    "getNestedParam" -> parameter,
    "extractPathType" -> (call =>
      e => {
        val path = call.textOrNull(e, 0)
        val found = if (path == null) None else PATH_TYPES.find { case (part, _) => path.contains(part) }
        found.fold(UNKNOWN)(_._2)
      }
    )
  )

  private def parameter: Build = call =>
    e => {
      val (query, name) = (call.textOrNull(e, 0), call.textOrNull(e, 1))
      val found = if (query == null || name == null) None else parameters(call, query).find(_._1 == name)
      found.fold(UTF8String.EMPTY_UTF8)(_._2)
    }

  private def decoded(call: Call, text: UTF8String): UTF8String = {
    val found = Scalars.urlDecode(text)
    if (found == null) call.fail("the value is not URL-encoded UTF-8") else found
  }

  /** The decoded parameters of a query, in order; none of an invalid one, which Go's parser refuses: with a semicolon,
    * an older separator, or with a percent sign before anything else than two digits.
    */
  private def parameters(call: Call, query: UTF8String): Seq[(UTF8String, UTF8String)] = {
    val found = ArrayBuffer[(UTF8String, UTF8String)]()
    if (query.contains(SEMICOLON) || !hasCodes(query)) return found.toSeq
    Scalars.split(query, AND).foreach { part =>
      val text = part.asInstanceOf[UTF8String]
      if (text.numBytes > 0) {
        val at = text.indexOf(EQUALS, 0)
        val (name, value) =
          if (at < 0) (text, UTF8String.EMPTY_UTF8) else (text.substring(0, at), text.substring(at + 1, text.numChars))
        found += decoded(call, name) -> decoded(call, value)
      }
    }
    found.toSeq
  }

  /** Whether two hexadecimal digits follow each percent sign. */
  private def hasCodes(text: UTF8String): Boolean = {
    val bytes = text.getBytes
    bytes.indices.forall { i =>
      bytes(i) != '%' || i + 2 < bytes.length && Seq(i + 1, i + 2).forall(at => Scalars.hex(bytes(at)) >= 0)
    }
  }

  /** An object of parameters: the value of a name that is there several times is the list of its texts. */
  private def asObject(parameters: Seq[(UTF8String, UTF8String)]): ObjectValue = {
    val byName = new LinkedHashMap[UTF8String, ArrayBuffer[Any]]()
    parameters.foreach { case (name, value) => byName.computeIfAbsent(name, _ => ArrayBuffer[Any]()) += value }
    val names = byName.keySet.asScala.toArray
    ObjectValue(
      names,
      names.map { name =>
        val values = byName.get(name)
        if (values.length == 1) values.head else ListValue(values.toArray)
      }
    )
  }
}
