package glassflow

import org.apache.spark.unsafe.types.UTF8String

/** GlassFlow's helpers parseUserAgent() and waterfall(). */
object AgentCalls {
  import Call.Build

  val HELPERS: Map[String, Build] = Map(
    "parseUserAgent" -> (call => {
      val part = PARTS.get(call.literal(1))
      e => {
        val agent = call.textOrNull(e, 0)
        if (part.isEmpty || agent == null || agent.numBytes == 0) UTF8String.EMPTY_UTF8
        else UTF8String.fromString(part.get(Scalars.lower(agent).toString))
      }
    }),
    "waterfall" -> (call =>
      e => {
        val found = call.arguments match {
          case Array(single) => single.value(e) match {
              case list: ListValue if single.kind != "any" => list.items.iterator.map(Values.text)
              case value => Iterator(Values.text(value))
            }
          case several => several.iterator.map(argument => Values.text(argument.value(e)))
        }
        found.find(text => text != null && text.numBytes > 0).getOrElse(UTF8String.EMPTY_UTF8)
      }
    )
  )

  // By the second argument: the value of a user agent in lower case.
  private val PARTS: Map[String, String => String] = Map("device" -> device, "browser" -> browser, "os" -> system)

  private def device(agent: String): String =
    if (agent.contains("ipad") || agent.contains("android") && !agent.contains("mobile")) "Tablet"
    else if (Seq("mobile", "iphone", "android").exists(agent.contains(_))) "Mobile"
    else "Desktop"

  // Edge first, since its user agent names Chrome and Safari, too.
  private val BROWSERS = Seq(
    "edg/" -> "Edge",
    "chrome" -> "Chrome",
    "crios" -> "Chrome",
    "firefox" -> "Firefox",
    "fxios" -> "Firefox",
    "safari" -> "Safari"
  )
  // iOS and Android first, since theirs name macOS and Linux, too.
  private val SYSTEMS = Seq(
    "iphone" -> "iOS",
    "ipad" -> "iOS",
    "ipod" -> "iOS",
    "android" -> "Android",
    "windows" -> "Windows",
    "macintosh" -> "macOS",
    "mac os" -> "macOS",
    "linux" -> "Linux"
  )

  private def browser(agent: String): String = first(BROWSERS, agent)
  private def system(agent: String): String = first(SYSTEMS, agent)

  private def first(words: Seq[(String, String)], agent: String): String =
    words.collectFirst { case (word, name) if agent.contains(word) => name }.getOrElse("Unknown")
}
