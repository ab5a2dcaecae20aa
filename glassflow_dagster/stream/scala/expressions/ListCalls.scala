package glassflow

import org.apache.spark.unsafe.types.UTF8String

/** Functions of lists, of JSON arrays as well as of those that an expression makes. */
object ListCalls {
  import Call.Build

  // Levels of nested lists that flatten() opens.
  private final val FLATTEN_DEPTH = 3

  val BUILTINS: Map[String, Build] = Map(
    "len" -> (call =>
      e =>
        call.given(e, 0) match {
          case text: UTF8String => text.numChars.toLong
          case list: ListValue => list.size.toLong
          case members: ObjectValue => members.names.length.toLong
          case _ => call.fail("the value has no length")
        }
    ),
    "count" -> (call =>
      e =>
        call.items(e, 0).count {
          case truth: java.lang.Boolean => truth
          case _ => call.fail("an element is not true or false")
        }.toLong
    ),
    "first" -> (call => e => call.items(e, 0).headOption.orNull),
    "last" -> (call => e => call.items(e, 0).lastOption.orNull),
    "take" -> (call =>
      e => {
        val (items, count) = (call.items(e, 0), call.long(e, 1))
        if (count < 0) call.fail("the number is negative")
        ListValue(items.take(Math.min(count, items.length.toLong).toInt))
      }
    ),
    "reverse" -> (call => e => ListValue(call.items(e, 0).reverse)),
    "sort" -> (call => {
      val isDescending = call.literal(1) == "desc"
      e => {
        val sorted = sort(call, call.items(e, 0))
        ListValue(if (isDescending) sorted.reverse else sorted)
      }
    }),
    "uniq" -> (call => e => ListValue(Values.distinct(call.items(e, 0)))),
    "flatten" -> (call => e => ListValue(flatten(call, call.items(e, 0), FLATTEN_DEPTH))),
    "concat" -> (call => e => ListValue(call.arguments.indices.toArray.flatMap(call.items(e, _))))
  )

  /** The items in ascending order, if all are numbers, texts or bools. */
  private def sort(call: Call, items: Array[Any]): Array[Any] =
    if (items.forall(Values.isNumber)) items.sortWith(Values.compareNumbers(_, _) < 0)
    else if (items.forall(_.isInstanceOf[UTF8String]))
      items.sortWith((one, other) => one.asInstanceOf[UTF8String].binaryCompare(other.asInstanceOf[UTF8String]) < 0)
    else if (items.forall(_.isInstanceOf[java.lang.Boolean]))
      items.sortWith((one, other) => one == false && other == true)
    else if (call.kind == "values") call.fail("the elements are not all numbers or all strings")
    else call.fail("nil cannot be sorted")

  /** The items with each list among them replaced by its items, down to a depth. */
  private def flatten(call: Call, items: Array[Any], depth: Int): Array[Any] = items.flatMap {
    case list: ListValue =>
      if (depth == 0) call.fail(s"lists are nested deeper than $FLATTEN_DEPTH")
      flatten(call, list.items, depth - 1)
    case other => Array[Any](other)
  }
}
