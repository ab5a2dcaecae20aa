package org.apache.spark.sql.inline

import java.util.{HashMap => JavaMap}

import org.apache.kafka.clients.consumer.{ConsumerConfig, KafkaConsumer}
import org.apache.kafka.common.serialization.ByteArrayDeserializer
import org.rocksdb.RocksDB

import org.apache.spark.SparkThrowableHelper
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.types.{LongType, StructType}
import org.apache.spark.sql.util.ArrowUtils

/** Uses what a first batch will use, while one core creates Spark's context and the other one would wait: libraries
  * that load classes, native code or large files when they are first used.
  */
object WarmUp {

  /** Called from Python, as soon as the JVM answers. Returns at once. */
  def start(): Unit = {
    val thread = new Thread(() => steps.foreach(_.apply()), "warm-up")
    thread.setDaemon(true)
    thread.start()
  }

  private val steps: Seq[() => Unit] = Seq(
    // Spark's generator of code, and the compiler for it.
    () => UnsafeProjection.create(new StructType().add("value", LongType)),
    // The native library, which is unpacked from its jar.
    () => RocksDB.loadLibrary(),
    // The texts of all of Spark's errors: its Kafka source handles one when it begins.
    () => SparkThrowableHelper.getSqlState("INTERNAL_ERROR"),
    () => new KafkaConsumer[Array[Byte], Array[Byte]](consumer).close(),
    () => ArrowUtils.rootAllocator.buffer(1).close()
  )

  // Without a request nothing connects to this address.
  private def consumer: JavaMap[String, Object] = {
    val settings = new JavaMap[String, Object]
    settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:1")
    settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, classOf[ByteArrayDeserializer].getName)
    settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, classOf[ByteArrayDeserializer].getName)
    settings
  }
}
