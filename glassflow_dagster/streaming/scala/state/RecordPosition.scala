package glassflow

/** A record's place in Kafka; among the records of one batch the one with the least place comes first. */
trait RecordPosition {
  def topic: Int
  def partition: Int
  def offset: Long

  def precedes(other: RecordPosition): Boolean =
    if (topic != other.topic) topic < other.topic
    else if (partition != other.partition) partition < other.partition
    else offset < other.offset
}
