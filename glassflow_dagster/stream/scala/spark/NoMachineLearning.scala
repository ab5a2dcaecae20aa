package org.apache.spark.sql.ml

import org.apache.spark.sql.{SparkSessionExtensions, SparkSessionExtensionsProvider}

/** In place of the class of this name in Spark's library for machine learning, as this jar comes first in the class
  * path. Spark's own registers two SQL functions for its vectors in each session, for which it loads Scala's
  * reflection: half a second of a start, for functions that no pipeline can call.
  */
class InternalFunctionRegistration extends SparkSessionExtensionsProvider {
  override def apply(extensions: SparkSessionExtensions): Unit = ()
}
