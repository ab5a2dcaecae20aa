package glassflow

/** A declared field: its name, its kind, whether a record must have it, and the names of the objects that lead to it,
  * with its own as the last one.
  */
final case class JsonField(name: String, kind: String, required: Boolean, path: Seq[String])

/** A field that takes the value of a name: by the literal name, or as the end of a path. */
final case class Taker(index: Int, literal: Boolean)

/** A member's name: the fields that take its value, and the names that are looked for inside an object there. */
final class Node {
  private val children = new java.util.HashMap[String, Node]()
  var takers: Array[Taker] = Array.empty

  def hasChildren: Boolean = !children.isEmpty
  def get(name: String): Node = children.get(name)
  def child(name: String): Node = children.computeIfAbsent(name, _ => new Node)
  def take(index: Int, literal: Boolean): Unit = takers = takers :+ Taker(index, literal)
  def foreach(see: (String, Node) => Unit): Unit = children.forEach((name, node) => see(name, node))
}

object Node {

  /** The declared names as a tree: a name is looked for as it is, and by its path. */
  def apply(fields: Array[JsonField]): Node = fields.zipWithIndex.foldLeft(new Node) { case (root, (field, index)) =>
    root.child(field.name).take(index, literal = true)
    val path = field.path
    if (path.length > 1) path.foldLeft(root)((at, name) => at.child(name)).take(index, literal = false)
    root
  }
}
