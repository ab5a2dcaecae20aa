package glassflow.tests

import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Paths, StandardOpenOption}
import java.util

import javax.security.auth.callback.Callback
import javax.security.auth.login.AppConfigurationEntry

import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler
import org.apache.kafka.common.security.oauthbearer.{OAuthBearerToken, OAuthBearerValidatorCallback}
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback

/** Accepts every token at a broker and writes it to a file; the test verifies the signatures. */
final class MskTokens extends AuthenticateCallbackHandler {
  override def configure(
      configs: util.Map[String, _],
      mechanism: String,
      entries: util.List[AppConfigurationEntry]
  ): Unit = ()

  override def handle(callbacks: Array[Callback]): Unit = callbacks.foreach {
    case validation: OAuthBearerValidatorCallback =>
      val line = (validation.tokenValue + "\n").getBytes(StandardCharsets.UTF_8)
      Files.write(Paths.get(System.getProperty("tests.tokens")), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND)
      validation.token(new OAuthBearerToken {
        override def value: String = validation.tokenValue
        override def scope: util.Set[String] = util.Set.of()
        override def lifetimeMs: Long = System.currentTimeMillis + 900000
        override def principalName: String = "msk"
        override def startTimeMs: java.lang.Long = null
      })
    case _: OAuthBearerExtensionsValidatorCallback => ()
    case _ => ()
  }

  override def close(): Unit = ()
}
