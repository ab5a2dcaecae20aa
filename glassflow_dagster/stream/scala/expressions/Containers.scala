package glassflow

import org.apache.spark.unsafe.types.UTF8String

/** `[a, b]`. elementKind: of all its elements. */
final class ListTerm(val kind: String, val source: String, items: Array[Term], elementKind: String) extends Term {
  private val elements: Array[Term] = items.map(item => WidenedTerm(new FiniteTerm(item), item, elementKind))
  override def value(e: Evaluation): Any = ListValue(elements.map(_.value(e)))
}

/** A term whose value goes into JSON, which has no NaN and no infinity. */
final class FiniteTerm(term: Term) extends Term {
  override def kind: String = term.kind
  override def source: String = term.source
  override def value(e: Evaluation): Any = term.finite(e)
}

/** `{a: 1, b: 2}`. */
final class ObjectTerm(val kind: String, val source: String, names: Array[UTF8String], values: Array[Term])
    extends Term {
  override def value(e: Evaluation): Any = ObjectValue(names, values.map(_.finite(e)))
}

/** `base[start:end]` of a text or a list. Bounds may be missing (null); negative ones count from the end; those outside
  * count as the nearest one inside.
  */
final class SliceTerm(val kind: String, val source: String, base: Term, start: Term, end: Term) extends Term {
  private val isOfText = base.kind == "string"

  override def value(e: Evaluation): Any = base.notNil(e, this) match {
    case text: UTF8String if isOfText =>
      val (from, to) = bounds(e, text.numChars)
      text.substring(from, to)
    case list: ListValue =>
      val (from, to) = bounds(e, list.size)
      ListValue(list.items.slice(from, to))
    case _ => fail(s"${base.source} is not an array")
  }

  private def bounds(e: Evaluation, size: Int): (Int, Int) = (
    if (start == null) 0 else inside(start.long(e, this), size),
    if (end == null) size else inside(end.long(e, this), size)
  )

  private def inside(bound: Long, size: Int): Int =
    Math.max(0L, Math.min(if (bound < 0) bound + size else bound, size.toLong)).toInt
}

/** `#`, the element for which a predicate is evaluated. */
final class PointerTerm(val kind: String, val source: String) extends Term {
  override def value(e: Evaluation): Any = e.element
}

/** A link of a chain such as `a?.b.c`: where a `?.` finds nil, the rest of the chain is nil, too, without a failure. */
abstract class LinkTerm(base: Term, isOptional: Boolean) extends Term {
  import LinkTerm.ENDED

  /** Look up in a container that is not nil. */
  protected def lookUp(container: Any, e: Evaluation): Any

  /** The value; ENDED where a `?.` has found nil. */
  final def link(e: Evaluation): Any = {
    val container = base match {
      case before: LinkTerm => before.link(e)
      case other => other.value(e)
    }
    if (container != null && (container.asInstanceOf[AnyRef] ne ENDED)) lookUp(container, e)
    else if (container == null && !isOptional) fail(s"${base.source} is nil")
    else ENDED
  }

  override def value(e: Evaluation): Any = {
    val found = link(e)
    if (found.asInstanceOf[AnyRef] eq ENDED) null else found
  }
}

object LinkTerm {
  val ENDED = new Object
}

/** `base.name`: nil where the object has no such name. */
final class MemberTerm(val kind: String, val source: String, base: Term, name: UTF8String, isOptional: Boolean)
    extends LinkTerm(base, isOptional) {
  override protected def lookUp(container: Any, e: Evaluation): Any = container match {
    case members: ObjectValue => members.get(name)
    case _ => fail(s"${base.source} is not an object")
  }
}

/** `base[index]`, by a name or a number; a negative number counts from the end. */
final class IndexTerm(val kind: String, val source: String, base: Term, index: Term, isOptional: Boolean)
    extends LinkTerm(base, isOptional) {
  private val isByName = index.kind == "string"

  override protected def lookUp(container: Any, e: Evaluation): Any =
    if (isByName) {
      val name = index.text(e, this)
      container match {
        case members: ObjectValue => members.get(name)
        case _ => fail(s"${base.source} is not an object")
      }
    } else {
      val at = index.long(e, this)
      container match {
        case list: ListValue =>
          val position = list.position(at)
          if (position < 0) fail("the index is out of range") else list.items(position)
        case _ => fail(s"${base.source} is not an array")
      }
    }
}

/** `get(base, index)`: nil where there is no such element, no such container, or no index. */
final class GetTerm(val kind: String, val source: String, base: Term, index: Term) extends Term {
  override def value(e: Evaluation): Any = {
    val container = base.value(e)
    (container, if (container == null) null else index.value(e)) match {
      case (members: ObjectValue, name: UTF8String) => members.get(name)
      case (list: ListValue, number) if Values.isNumber(number) =>
        val at = index.long(e, this)
        val position = list.position(at)
        if (position < 0) null else list.items(position)
      case _ => null
    }
  }
}

/** any(), filter() and the other functions that evaluate a predicate for each element of a list. Those that stop do so
  * at the first element that decides, so that a failure for a later one does not count.
  */
final class PredicateTerm(val kind: String, val source: String, function: String, over: Term, body: Term)
    extends Term {
  private val evaluate: (Evaluation, Array[Any]) => Any = function match {
    case "any" => (e, items) => items.exists(isTrue(e, _))
    case "none" => (e, items) => !items.exists(isTrue(e, _))
    case "all" => (e, items) => items.forall(isTrue(e, _))
    case "one" => (e, items) => items.count(isTrue(e, _)) == 1
    case "count" => (e, items) => items.count(isTrue(e, _)).toLong
    case "filter" => (e, items) => ListValue(items.filter(isTrue(e, _)))
    case "find" => (e, items) => at(items, items.indexWhere(isTrue(e, _)))
    case "findLast" => (e, items) => at(items, items.lastIndexWhere(isTrue(e, _)))
    case "findIndex" => (e, items) => indexOrNil(items.indexWhere(isTrue(e, _)))
    case "findLastIndex" => (e, items) => indexOrNil(items.lastIndexWhere(isTrue(e, _)))
    case "map" =>
      val mapped = WidenedTerm(new FiniteTerm(body), body, Program.elementKind(kind))
      (e, items) => ListValue(items.map(item => e.ofElement(item)(mapped.value(e))))
    case "sum" if kind == "int" =>
      (e, items) => NumberCalls.sum(items.map(item => e.ofElement(item)(body.long(e, this))), this)
    case "sum" => (e, items) => items.foldLeft(0.0)((sum, item) => sum + e.ofElement(item)(body.double(e, this)))
  }

  override def value(e: Evaluation): Any = evaluate(e, over.list(e, this).items)

  private def isTrue(e: Evaluation, item: Any): Boolean = e.ofElement(item)(body.truth(e, this))

  private def at(items: Array[Any], index: Int): Any = if (index < 0) null else items(index)
  private def indexOrNil(index: Int): Any = if (index < 0) null else index.toLong
}
