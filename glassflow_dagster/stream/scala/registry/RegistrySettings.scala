package glassflow

import java.util.concurrent.ConcurrentHashMap

import javax.net.ssl.SSLContext

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.kafka.common.config.types.Password
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory

import scala.jdk.CollectionConverters._

/** How a schema registry is reached.
  *
  * It goes to the executors within a task, not within the text of a plan, which Spark's web page shows: it has secrets.
  *
  * @param urls
  *   its addresses, of which any will do
  * @param authorization
  *   the value of the header of that name; null for none
  * @param tls
  *   settings of Kafka's clients for TLS, such as ssl.truststore.certificates
  * @param folder
  *   where the schemas that were fetched are kept, so that a repeated batch decides as the first; null for none
  * @param patienceMs
  *   how long an answer is waited for
  */
final class RegistrySettings(
    val urls: Array[String],
    val authorization: String,
    val tls: java.util.Map[String, String],
    val folder: String,
    val patienceMs: Long
) extends Serializable {
  import RegistrySettings._

  override def toString: String = s"RegistrySettings(${urls.mkString(", ")})"

  /** The certificates, as Kafka's clients read them, from PEM. */
  def sslContext: SSLContext = {
    val factory = new DefaultSslEngineFactory
    val configured = new java.util.HashMap[String, Any]()
    tls.forEach((name, value) => configured.put(name, if (PASSWORDS(name)) new Password(value) else value))
    configured.put("ssl.protocol", "TLSv1.3")
    factory.configure(configured)
    factory.sslContext
  }
}

object RegistrySettings {
  private val PASSWORDS = Set("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key")
  private val declared = new ConcurrentHashMap[String, RegistrySettings]()

  /** Declare a registry under a name, which the plans of this JVM's queries then use.
    *
    * @param json
    *   {"urls": [...], "authorization": ..., "tls": {...}, "folder": ..., "patience_ms": ...}
    */
  def declare(name: String, json: String): Unit = {
    val node = new ObjectMapper().readTree(json)
    val tls = new java.util.HashMap[String, String]()
    node.get("tls").properties.forEach(entry => tls.put(entry.getKey, entry.getValue.asText))
    val settings = new RegistrySettings(
      node.get("urls").elements.asScala.map(_.asText).toArray,
      node.get("authorization").asText(null),
      tls,
      node.get("folder").asText(null),
      node.get("patience_ms").asLong
    )
    // Now, so that certificates that are none are an error of the start.
    if (!tls.isEmpty) settings.sslContext
    declared.put(name, settings)
  }

  def of(name: String): RegistrySettings = {
    val settings = declared.get(name)
    if (settings == null) throw new IllegalArgumentException(s"no schema registry is declared as $name")
    settings
  }
}
