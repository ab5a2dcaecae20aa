package glassflow

import scala.collection.mutable.ArrayBuffer

/** The rule by which left events are joined with right ones, and how long events are kept for that. All times are in
  * microseconds.
  */
trait Matching extends Serializable {

  /** Add the new events of a key to its state, decide the left events that can be decided, remove events that are not
    * needed any more, and return the joined rows, as (left, right) with null for the right event of an unmatched one.
    *
    * complete: all events before this time have arrived. outcome: is updated; its `waiting` already includes the new
    * left events.
    */
  private[glassflow] def settle(
      state: JoinState,
      lefts: ArrayBuffer[BufferedEvent],
      rights: ArrayBuffer[BufferedEvent],
      complete: Long,
      outcome: Outcome
  ): Iterator[(BufferedEvent, BufferedEvent)]

  /** The value of `complete` at which something can be decided or removed next. The state is not empty. */
  def wakeUs(state: JoinState): Long
}

/** Joins a left event with one right event at most: the latest one before it, else the first one after it.
  *
  * A left event is decided when all events before it have arrived. Of the right events before `complete`, only the
  * latest one is kept: it is the one that left events still to come can be joined with.
  */
class LatestMatch(leftWindow: Long, rightWindow: Long) extends Matching {
  private[glassflow] override def settle(
      state: JoinState,
      lefts: ArrayBuffer[BufferedEvent],
      rights: ArrayBuffer[BufferedEvent],
      complete: Long,
      outcome: Outcome
  ): Iterator[(BufferedEvent, BufferedEvent)] = {
    state.lefts.add(lefts)
    state.rights.add(rights)
    val rows = new ArrayBuffer[(BufferedEvent, BufferedEvent)]
    state.lefts.keep { left =>
      val right = find(left, state.rights, complete)
      val isOver = right == null && complete >= left.time + leftWindow
      if (right != null) outcome.matched += 1
      if (isOver) outcome.unmatched += 1
      if (right != null || isOver) {
        outcome.waiting -= 1
        rows += ((left, right))
      }
      right == null && !isOver
    }
    val known = state.rights.countBefore(complete)
    val latest = if (known == 0) null else state.rights(known - 1)
    state.rights.keep(right => right.time >= complete || ((right eq latest) && complete < right.time + rightWindow))
    rows.iterator
  }

  /** The right event of a left one, null where there is none yet or it cannot be decided yet. */
  private def find(left: BufferedEvent, rights: BufferedEvents, complete: Long): BufferedEvent =
    if (left.time >= complete) null
    else {
      val after = rights.countBefore(left.time + 1)
      if (after > 0 && left.time - rights(after - 1).time < rightWindow) rights(after - 1)
      else if (after < rights.size && rights(after).time < complete && rights(after).time - left.time < leftWindow)
        rights(after)
      else null
    }

  override def wakeUs(state: JoinState): Long =
    if (state.lefts.isEmpty) state.rights.last.time + rightWindow
    else state.lefts.iterator.map(decidedAt(_, state.rights)).min

  /** The time at which a left event can be decided: when all events before it have arrived, if there is one; else when
    * the first one after it is certain; at the latest at the end of its window.
    */
  private def decidedAt(left: BufferedEvent, rights: BufferedEvents): Long = {
    val after = rights.countBefore(left.time + 1)
    val over = left.time + leftWindow
    if (after > 0) left.time + 1
    else if (after < rights.size) math.min(rights(after).time + 1, over)
    else over
  }
}

/** Joins a left event with every right event within the windows. */
class EveryMatch(leftWindow: Long, rightWindow: Long) extends Matching {
  private[glassflow] override def settle(
      state: JoinState,
      lefts: ArrayBuffer[BufferedEvent],
      rights: ArrayBuffer[BufferedEvent],
      complete: Long,
      outcome: Outcome
  ): Iterator[(BufferedEvent, BufferedEvent)] = {
    // New left events are joined with all right ones, earlier left events with the new right ones: so each pair once.
    val newRights = new BufferedEvents(Array.empty)
    newRights.add(rights)
    val before = state.lefts.iterator.toArray
    state.rights.add(rights)
    val newLefts = new BufferedEvents(Array.empty)
    newLefts.add(lefts)
    state.lefts.add(lefts)
    val allRights = new BufferedEvents(state.rights.iterator.toArray)

    markMatched(before.iterator, newRights, outcome)
    markMatched(newLefts.iterator, allRights, outcome)
    val over = state.lefts.iterator.filter(left => !left.matched && isOver(left, complete)).toArray
    outcome.unmatched += over.length
    outcome.waiting -= over.length
    state.lefts.keep(!isOver(_, complete))
    state.rights.keep(right => complete < right.time + rightWindow)
    pairs(before.iterator, newRights) ++ pairs(newLefts.iterator, allRights) ++ over.iterator.map((_, null))
  }

  private def isOver(left: BufferedEvent, complete: Long): Boolean = complete >= left.time + leftWindow

  /** The index of the first right event within the windows of a left one. */
  private def first(left: BufferedEvent, rights: BufferedEvents): Int = rights.countBefore(left.time - rightWindow + 1)

  /** The index after the last right event within the windows of a left one. */
  private def until(left: BufferedEvent, rights: BufferedEvents): Int = rights.countBefore(left.time + leftWindow)

  /** Mark and count the left events that are joined for the first time. */
  private def markMatched(lefts: Iterator[BufferedEvent], rights: BufferedEvents, outcome: Outcome): Unit =
    lefts.foreach { left =>
      if (!left.matched && first(left, rights) < until(left, rights)) {
        left.matched = true
        outcome.matched += 1
        outcome.waiting -= 1
      }
    }

  /** All pairs, lazily: one key may have more pairs than fit into memory. */
  private def pairs(lefts: Iterator[BufferedEvent], rights: BufferedEvents): Iterator[(BufferedEvent, BufferedEvent)] =
    lefts.flatMap(left => (first(left, rights) until until(left, rights)).iterator.map(i => (left, rights(i))))

  override def wakeUs(state: JoinState): Long = {
    val waiting = state.lefts.iterator.filterNot(_.matched).map(_.time + leftWindow)
    val lastLeft = if (state.lefts.isEmpty) Long.MinValue else state.lefts.last.time + leftWindow
    val lastRight = if (state.rights.isEmpty) Long.MinValue else state.rights.last.time + rightWindow
    waiting.minOption.getOrElse(math.max(lastLeft, lastRight))
  }
}
