package glassflow

import java.io.{ByteArrayOutputStream, IOException}
import java.net.URI
import java.net.URLEncoder
import java.net.http.{HttpClient, HttpRequest, HttpResponse}
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.time.Duration
import java.util.{List => JavaList}
import java.util.concurrent.{CompletableFuture, CompletionStage, ExecutionException, Flow, TimeUnit, TimeoutException}

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import scala.jdk.CollectionConverters._

/** A schema as the registry has it. texts: the schemas that it refers to, each after those it refers to itself, and
  * then its own text. kind: AVRO, PROTOBUF or JSON.
  */
final case class RegisteredSchema(kind: String, texts: Seq[String])

/** The registry cannot be used, for a reason that no record has: the batch fails, and the pipeline ends with it. */
final class RegistryError(message: String) extends RuntimeException(message)

/** Reads schemas from a registry over Confluent's HTTP interface.
  *
  * An address that does not answer, or answers that it cannot (429, 500 and above), is asked again, in turn with the
  * others, until the patience has ended: meanwhile the stream waits.
  */
final class RegistryClient(settings: RegistrySettings) {
  import RegistryClient._

  private lazy val client: HttpClient = {
    // Not the second version, which some proxies do not let through.
    val builder = HttpClient.newBuilder().connectTimeout(ANSWER_TIME).version(HttpClient.Version.HTTP_1_1)
    if (!settings.tls.isEmpty) builder.sslContext(settings.sslContext)
    builder.build()
  }
  private val json = new ObjectMapper()

  /** The schema with an id (a number, or a UUID with hyphens); None where the registry does not know it, or a schema
    * that it refers to. Throws RegistryError.
    */
  def schema(id: String): Option[RegisteredSchema] = {
    val deadline = System.nanoTime + settings.patienceMs * 1000000
    val isUnique = id.contains('-')
    val path = if (isUnique) s"/schemas/guids/$id" else s"/schemas/ids/$id"
    val found = get(path, deadline, answers404 = if (isUnique) NO_SUCH_PAGE else NO_SUCH_SCHEMA)
    // Registries that do not know UUIDs have no such page; other servers have no list of types either.
    if (found.isEmpty && isUnique) get("/schemas/types", deadline, NO_SUCH_SCHEMA)
    found.flatMap { node =>
      val referred = new java.util.LinkedHashMap[String, String]()
      if (collect(node, referred, new java.util.HashSet, deadline))
        Some(RegisteredSchema(node.path("schemaType").asText("AVRO"), referred.values.asScala.toSeq :+ textOf(node)))
      else None
    }
  }

  /** Add the schemas that one refers to, each after those it refers to itself; return whether all are there.
    *
    * @param asked
    *   the names of those that were asked for, in case they refer to each other
    */
  private def collect(
      schema: JsonNode,
      found: java.util.LinkedHashMap[String, String],
      asked: java.util.HashSet[String],
      deadline: Long
  ): Boolean =
    schema.path("references").elements.asScala.forall { reference =>
      val (subject, version) = (reference.path("subject").asText, reference.path("version").asText)
      val name = s"$subject $version"
      !asked.add(name) || asked.size < MOST_REFERENCES && {
        // Also where it was deleted: a schema that was written with it is still there.
        val subjectPath = URLEncoder.encode(subject, UTF_8).replace("+", "%20")
        get(s"/subjects/$subjectPath/versions/$version?deleted=true", deadline, NO_SUCH_SCHEMA).exists { other =>
          val isComplete = collect(other, found, asked, deadline)
          found.put(name, textOf(other))
          if (found.values.asScala.map(_.length.toLong).sum > MOST_BYTES) throw tooLarge(described)
          isComplete
        }
      }
    }

  private def textOf(schema: JsonNode): String = {
    val text = schema.path("schema").asText(null)
    if (text == null)
      throw new RegistryError(s"schema registry $described: answers without a schema; is it a schema registry?")
    text
  }

  /** The answer to a request; None for one that says that there is nothing. */
  private def get(path: String, deadline: Long, answers404: String => Boolean): Option[JsonNode] = {
    var attempt = 0
    while (true) {
      val url = settings.urls(attempt % settings.urls.length).stripSuffix("/") + path
      val problem =
        try {
          val answer = send(url)
          val body = answer.body.getOrElse(throw tooLarge(url))
          answer.statusCode match {
            case 200 => return Some(parsed(url, body))
            case 404 if answers404(body) => return None
            // An id that is none for this registry.
            case 400 | 422 if isOfRegistry(body) => return None
            case status @ (401 | 403) =>
              val remedy = "correct schema_registry.api_key and api_secret, or bearer_token"
              throw new RegistryError(s"schema registry $url: answers $status (${start(body)}); $remedy")
            case status if status == 429 || status >= 500 => s"answers $status"
            case status =>
              val remedy = "correct schema_registry.url"
              throw new RegistryError(s"schema registry $url: answers $status (${start(body)}); $remedy")
          }
        } catch { case error: IOException => said(error) }
      attempt += 1
      if (System.nanoTime > deadline)
        throw new RegistryError(s"schema registry $url: $problem; waited ${settings.patienceMs / 1000} s for it")
      Thread.sleep(math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << math.min(attempt, MOST_DOUBLINGS)))
    }
    throw new IllegalStateException
  }

  /** Send a request; throws IOException also where an answer begins in time and does not end. The answer has no body
    * where that is larger than MOST_BYTES.
    */
  private def send(url: String): HttpResponse[Option[String]] = {
    val request =
      try {
        val builder = HttpRequest.newBuilder(URI.create(url)).header("Accept", ACCEPTED)
        if (settings.authorization != null) builder.header("Authorization", settings.authorization)
        builder.build()
      } catch {
        // Without its text, which may hold the credentials.
        case _: IllegalArgumentException =>
          throw new RegistryError(
            s"schema registry $url: address or credentials are not valid in a request; correct them"
          )
      }
    val answer = client.sendAsync(request, _ => new LimitedBody(MOST_BYTES))
    try answer.get(ANSWER_TIME.toSeconds, TimeUnit.SECONDS)
    catch {
      case error: ExecutionException if error.getCause.isInstanceOf[IOException] => throw error.getCause
      case _: TimeoutException =>
        answer.cancel(true)
        throw new IOException(s"no answer for ${ANSWER_TIME.toSeconds} s")
    }
  }

  private def parsed(url: String, body: String): JsonNode =
    try json.readTree(body)
    catch {
      case _: JsonProcessingException =>
        throw new RegistryError(s"schema registry $url: answers no JSON (${start(body)}); is it a schema registry?")
    }

  private def described = settings.urls.mkString(", ")
}

/** The body of an answer as text; None for one of more bytes than allowed, of which no more are read. */
private class LimitedBody(most: Int) extends HttpResponse.BodySubscriber[Option[String]] {
  private val body = new CompletableFuture[Option[String]]
  private val bytes = new ByteArrayOutputStream
  private var subscription: Flow.Subscription = _

  override def getBody: CompletionStage[Option[String]] = body

  override def onSubscribe(subscribed: Flow.Subscription): Unit = {
    subscription = subscribed
    subscribed.request(Long.MaxValue)
  }

  override def onNext(parts: JavaList[ByteBuffer]): Unit = if (!body.isDone) {
    parts.forEach { part =>
      if (bytes.size + part.remaining <= most) {
        val copy = new Array[Byte](part.remaining)
        part.get(copy)
        bytes.write(copy, 0, copy.length)
      } else body.complete(None)
    }
    if (body.isDone) subscription.cancel()
  }

  override def onError(error: Throwable): Unit = body.completeExceptionally(error)
  override def onComplete(): Unit = body.complete(Some(bytes.toString(UTF_8)))
}

object RegistryClient {
  private val ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"
  private val ANSWER_TIME = Duration.ofSeconds(10)
  private final val FIRST_PAUSE_MS = 100L
  private final val LONGEST_PAUSE_MS = 5000L
  private final val MOST_DOUBLINGS = 6
  private final val SHOWN = 200
  private final val MOST_REFERENCES = 500
  // Of an answer, and of the schemas that one refers to, in all: a registry's own limit is a megabyte by default.
  private final val MOST_BYTES = 16 * 1024 * 1024
  private val ERRORS = new ObjectMapper()

  /** Whether a 404 says that there is no such schema or version (40403, 40402), and not that there is no such page. */
  private val NO_SUCH_SCHEMA: String => Boolean = body => errorCode(body) / 100 == 404
  private val NO_SUCH_PAGE: String => Boolean = _ => true

  private def tooLarge(place: String): RegistryError = new RegistryError(
    s"schema registry $place: answers with more than ${MOST_BYTES / 1024 / 1024} MiB for one schema; is it a schema " +
      "registry? If it is, register a smaller schema, or one that refers to fewer others"
  )

  private def isOfRegistry(body: String): Boolean = errorCode(body) > 0

  private def errorCode(body: String): Int =
    try ERRORS.readTree(body).path("error_code").asInt
    catch { case _: JsonProcessingException => 0 }

  private def start(body: String): String = body.take(SHOWN).replaceAll("\\s+", " ").trim

  private def said(error: IOException): String =
    Iterator.iterate[Throwable](error)(_.getCause).takeWhile(_ != null).map(_.getMessage).find(_ != null)
      .getOrElse(s"does not answer (${error.getClass.getSimpleName})")
}
