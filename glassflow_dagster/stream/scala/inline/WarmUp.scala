package org.apache.spark.sql.inline

import java.util.{HashMap => JavaMap}

import scala.util.Try

import org.apache.kafka.clients.consumer.{ConsumerConfig, KafkaConsumer}
import org.apache.kafka.common.serialization.ByteArrayDeserializer
import org.codehaus.janino.ClassBodyEvaluator
import org.rocksdb.RocksDB

import org.apache.spark.SparkThrowableHelper
import org.apache.spark.sql.util.ArrowUtils

/** Uses what a first batch will use, while one core creates Spark's context and the other one would wait: libraries
  * that load classes, native code or large files when they are first used.
  */
object WarmUp {

  /** Called from Python, as soon as the JVM answers. Returns at once. */
  def start(): Unit = {
    // The first batch meets the same errors, and reports them.
    val thread = new Thread(() => steps.foreach(step => Try(step())), "warm-up")
    thread.setDaemon(true)
    thread.start()
  }

  private val steps: Seq[() => Unit] = Seq(
    // The compiler of the code that Spark generates. Not Spark's generator, which keeps what it reads of the settings.
    () => new ClassBodyEvaluator().cook("public long twice(long value) { return 2 * value; }"),
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
