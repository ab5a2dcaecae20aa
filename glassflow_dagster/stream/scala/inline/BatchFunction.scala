package glassflow

/** What a `BatchQuery` calls for each batch; implemented in Python. */
trait BatchFunction {

  /** Run a batch, whose offsets and time are in the offset log; when it returns, the batch is committed. */
  def run(batch: Long): Unit
}
