package org.apache.spark.sql.inline

import java.io.ByteArrayOutputStream
import java.nio.channels.Channels

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils

/** Converts rows to Arrow's stream format, into buffers that are kept from batch to batch. */
class RowsToArrow(schema: StructType, timeZone: String) {
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("inline batches", 0, Long.MaxValue)
  private val root = VectorSchemaRoot.create(
    ArrowUtils.toArrowSchema(schema, timeZone, errorOnDuplicatedFieldNames = true, largeVarTypes = false),
    allocator
  )
  private val writer = ArrowWriter.create(root)

  /** The rows as a stream of one record batch. */
  def stream(rows: Iterator[InternalRow]): Array[Byte] = {
    val out = new ByteArrayOutputStream
    try {
      rows.foreach(writer.write)
      writer.finish()
      val stream = new ArrowStreamWriter(root, null, Channels.newChannel(out))
      stream.start()
      stream.writeBatch()
      stream.end()
    } finally writer.reset()
    out.toByteArray
  }

  def close(): Unit = {
    root.close()
    allocator.close()
  }
}
