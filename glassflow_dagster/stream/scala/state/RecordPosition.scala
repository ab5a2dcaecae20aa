package glassflow

/** A record's position in Kafka; it orders the records of one batch. topic: the topic's rank in the subscription. */
trait RecordPosition {
  def topic: Int
  def partition: Int
  def offset: Long

  def precedes(other: RecordPosition): Boolean =
    if (topic != other.topic) topic < other.topic
    else if (partition != other.partition) partition < other.partition
    else offset < other.offset
}
