package glassflow

/** The reason why a record's value cannot be decoded. It ends the reading of one record, so it has no stack trace. */
final class Refusal(reason: String) extends RuntimeException(reason, null, false, false)
