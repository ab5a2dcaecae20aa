package glassflow

import java.lang.reflect.Modifier

import scala.reflect.ClassTag

import org.apache.spark.sql.Encoder
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoder
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoders._
import org.apache.spark.sql.types.Metadata

/** Encoders of case classes, the same as those of Spark's `Encoders.product`. That one reads the fields with Scala's
  * reflection, whose start takes half a second of a driver's first batch; this one with Java's.
  */
object RecordEncoder {

  /** The encoder of a case class of integers, longs (or null), booleans and byte arrays. */
  def of[T <: Product](implicit tag: ClassTag[T]): Encoder[T] = {
    // Java returns the fields in the order of the class file, which is that of the declaration.
    val fields = tag.runtimeClass.getDeclaredFields.toSeq.filterNot(field => Modifier.isStatic(field.getModifiers))
    require(
      tag.runtimeClass.getConstructors.exists(_.getParameterTypes.toSeq == fields.map(_.getType)),
      s"$tag has other fields than those of its constructor"
    )
    ProductEncoder[T](
      tag,
      fields.map { field =>
        val encoder = encoderOf(field.getType)
        EncoderField(field.getName, encoder, encoder.nullable, Metadata.empty)
      },
      None
    )
  }

  private def encoderOf(kind: Class[_]): AgnosticEncoder[_] =
    if (kind == classOf[Int]) PrimitiveIntEncoder
    else if (kind == classOf[Long]) PrimitiveLongEncoder
    else if (kind == classOf[java.lang.Long]) BoxedLongEncoder
    else if (kind == classOf[Boolean]) PrimitiveBooleanEncoder
    else if (kind == classOf[Array[Byte]]) BinaryEncoder
    else throw new IllegalArgumentException(s"no encoder for a field of type $kind")
}
