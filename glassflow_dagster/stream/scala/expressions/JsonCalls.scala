package glassflow

import org.apache.spark.unsafe.types.UTF8String

/** Functions of objects, and of JSON. */
object JsonCalls {
  import Call.Build

  val BUILTINS: Map[String, Build] = Map(
    "values" -> (call =>
      e => {
        val members = given(call, e)
        ListValue(members.sorted.map(members.values(_)))
      }
    ),
    "toPairs" -> (call =>
      e => {
        val members = given(call, e)
        ListValue(members.sorted.map[Any](i => ListValue(Array[Any](members.names(i), members.values(i)))))
      }
    ),
    "toJSON" -> (call =>
      e =>
        call.given(e, 0) match {
          case number: java.lang.Double if !Values.isFinite(number) => call.fail(Term.NOT_FINITE)
          case value => JsonWriter.sortedText(value)
        }
    ),
    "fromJSON" -> (call =>
      e => {
        val text = call.text(e, 0)
        try JsonValues.read(text)
        catch { case refusal: Refusal => call.fail(refusal.getMessage) }
      }
    )
  )

  val HELPERS: Map[String, Build] = Map(
    "keys" -> (call =>
      e => {
        val names = objectOrNull(call, e).fold(Array.empty[UTF8String])(members => members.sorted.map(members.names(_)))
        ListValue(names.map[Any](identity))
      }
    ),
    "hasAnyKey" -> (call =>
      e => {
        val names = texts(call, e)
        objectOrNull(call, e).exists(members => names.exists(members.has))
      }
    ),
    "hasKeyPrefix" -> (call =>
      e => {
        val prefixes = texts(call, e)
        objectOrNull(call, e).exists(_.names.exists(name => prefixes.exists(name.startsWith(_))))
      }
    )
  )

  private def given(call: Call, e: Evaluation): ObjectValue = call.given(e, 0) match {
    case members: ObjectValue => members
    case _ => call.fail("the value is not an object")
  }

  private def objectOrNull(call: Call, e: Evaluation): Option[ObjectValue] = call.arguments(0).value(e) match {
    case members: ObjectValue => Some(members)
    case _ => None
  }

  /** The texts of the second argument, a list; none of any other value. */
  private def texts(call: Call, e: Evaluation): Array[UTF8String] = call.arguments(1).value(e) match {
    case list: ListValue => list.items.filter(_ != null).map(Values.text)
    case _ => Array.empty
  }
}
