package glassflow

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.unsafe.types.UTF8String

/** Builds the terms of one expression.
  *
  * @param text
  *   the expression
  * @param nodes
  *   its nodes, operands before the operations that have them: [type, kind, start, end, ...], with the positions of its
  *   source in the text, in characters, and then what `build` reads; nodes are named by their number
  * @param fields
  *   the fields that the program reads
  * @param kept
  *   the numbers of the nodes that occur several times
  * @param firstKept
  *   the index of the first value that the evaluation keeps for this expression
  */
final class Terms(
    text: String,
    nodes: Array[JsonNode],
    fields: Array[ProgramField],
    kept: Array[Int],
    firstKept: Int
) {
  private val terms = new Array[Term](nodes.length)
  nodes.indices.foreach { i =>
    val (term, keptAs) = (build(nodes(i)), kept.indexOf(i))
    terms(i) = folded(if (keptAs < 0) term else new KeptTerm(term, firstKept + keptAs), nodes(i))
  }

  /** The term of the whole expression. */
  def root: Term = terms.last

  /** An operation on literals as its result, so that it is evaluated once; one that fails does so for each record. */
  private def folded(term: Term, node: JsonNode): Term =
    if (!Terms.OPERATIONS(node.get(0).asText) || !Seq(4, 5).forall(isLiteral(node, _))) term
    else
      try new LiteralTerm(term.kind, term.source, term.value(null))
      catch { case _: Refusal => term }

  private def isLiteral(node: JsonNode, part: Int): Boolean =
    !node.has(part) || !node.get(part).isInt || terms(node.get(part).asInt).isInstanceOf[LiteralTerm]

  private def build(node: JsonNode): Term = {
    val (kind, source) = (node.get(1).asText, sourceOf(node))
    def part(i: Int): JsonNode = node.get(i + 4)
    def term(i: Int): Term = if (part(i).isNull) null else terms(part(i).asInt)
    def operands(i: Int): Array[Term] = Program.elements(part(i)).map(number => terms(number.asInt))
    def word(i: Int): String = part(i).asText
    node.get(0).asText match {
      case "literal" => new LiteralTerm(kind, source, Terms.literal(kind, part(0)))
      case "field" => FieldTerm(kind, source, fields(part(0).asInt))
      case "pointer" => new PointerTerm(kind, "#")
      case "list" => new ListTerm(kind, source, operands(0), Program.elementKind(kind))
      case "object" =>
        new ObjectTerm(kind, source, Program.elements(part(0)).map(name => Terms.utf8(name.asText)), operands(1))
      case "member" => new MemberTerm(kind, source, term(0), Terms.utf8(word(1)), part(2).asBoolean)
      case "index" => new IndexTerm(kind, source, term(0), term(1), part(2).asBoolean)
      case "get" => new GetTerm(kind, source, term(0), term(1))
      case "slice" => new SliceTerm(kind, source, term(0), term(1), term(2))
      case "method" => new MethodTerm(kind, source, term(0), word(1))
      case "not" => new NotTerm(kind, source, term(0))
      case "sign" => new SignTerm(kind, source, word(1) == "-", term(0))
      case "ternary" => new TernaryTerm(kind, source, term(0), term(1), term(2))
      case "binary" => binary(kind, source, word(2), term(0), term(1))
      case "matches" => new MatchesTerm(kind, source, term(0), word(1))
      case "in list" => new InListTerm(kind, source, term(0), operands(1))
      case "builtin" => new Call(kind, source, operands(1), Call.BUILTINS(word(0)))
      case "helper" => new Call(kind, source, operands(1), Call.HELPERS(word(0)))
      case "predicate" => new PredicateTerm(kind, source, word(0), term(1), term(2))
    }
  }

  private def binary(kind: String, source: String, operator: String, left: Term, right: Term): Term = operator match {
    case "and" | "or" => new LogicTerm(kind, source, operator == "and", left, right)
    case "??" => new CoalesceTerm(kind, source, left, right)
    case "==" | "!=" if left.kind == right.kind && (left.kind == "string" || left.kind == "int") =>
      new SameTerm(kind, source, operator == "==", left, right)
    case "==" | "!=" => new EqualTerm(kind, source, operator == "==", left, right)
    case "in" => right match {
        case range: RangeTerm if left.kind == "int" || left.kind == "uint" => new InRangeTerm(kind, source, left, range)
        case _ => new InTerm(kind, source, left, right)
      }
    case ".." => new RangeTerm(kind, source, left, right)
    case "<" | "<=" | ">" | ">=" => new OrderTerm(kind, source, operator, left, right)
    case "contains" | "startsWith" | "endsWith" => new TextTestTerm(kind, source, operator, left, right)
    case _ => kind match {
        case "time" | "duration" => new TimeTerm(kind, source, operator, left, right)
        case "string" => new JoinedTextTerm(kind, source, left, right)
        case "int" => new IntegerTerm(kind, source, operator, left, right)
        case _ => new FloatTerm(kind, source, operator, left, right)
      }
  }

  private def sourceOf(node: JsonNode): String = {
    val (start, end) = (node.get(2).asInt, node.get(3).asInt)
    text.substring(text.offsetByCodePoints(0, start), text.offsetByCodePoints(0, end))
  }
}

object Terms {
  // The types of nodes whose operands are the first two parts and no others.
  private val OPERATIONS = Set("not", "sign", "binary")

  private def utf8(text: String): UTF8String = UTF8String.fromString(text)

  private def literal(kind: String, value: JsonNode): Any = kind match {
    case "nil" => null
    case "string" => utf8(value.asText)
    case "bool" => value.asBoolean
    case "float" => value.asDouble
    case _ => value.asLong // int, and a duration
  }
}
