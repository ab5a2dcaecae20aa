package glassflow

import java.util

import javax.security.auth.login.AppConfigurationEntry

import org.apache.kafka.common.config.SaslConfigs
import org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler

/** Kafka's own handler, which requests tokens of an OpenID provider, for the provider that a definition names.
  *
  * Kafka's client asks only addresses of a system property. Executors, and a JVM that several pipelines share, could
  * not know all of them when they start, so each is added when a client is made for it.
  */
final class OAuthLogin extends OAuthBearerLoginCallbackHandler {
  override def configure(
      configs: util.Map[String, _],
      mechanism: String,
      jaasConfigEntries: util.List[AppConfigurationEntry]
  ): Unit = {
    Option(configs.get(SaslConfigs.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL)).foreach(url => OAuthLogin.allow(url.toString))
    super.configure(configs, mechanism, jaasConfigEntries)
  }
}

object OAuthLogin {
  // Kafka's BrokerSecurityConfigs.ALLOWED_SASL_OAUTHBEARER_URLS_CONFIG, of which the clients' jar has no constant.
  private val ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

  private def allow(url: String): Unit = synchronized {
    val allowed = System.getProperty(ALLOWED, "").split(",").map(_.trim).filter(_.nonEmpty)
    if (!allowed.contains(url)) System.setProperty(ALLOWED, (allowed :+ url).mkString(","))
  }
}
