package org.apache.spark.sql.inline

import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec

/** Decides whether a batch that the driver planned to run inline (stream/inline_or_job.py) needs a job all the same:
  * its plan has a node that only a job can run, or its records are too large.
  */
private[inline] object InlineOrJob {
  // The rows are in memory several times: here, as Arrow, and in Python. The driver plans a batch to be inline by the
  // size of earlier records, so this bound is for records that are much larger than those.
  val MOST_BYTES: Long = 32L * 1024 * 1024

  /** Prepare the physical plan of a batch; None where it has a node that only a job can run. */
  def plan(plan: SparkPlan, session: SparkSession, clock: BatchTimeHolder): Option[InlinePlan] = {
    val uncompiled = PreparedStage.withoutCodegen(plan)
    val states = uncompiled.collect { case state: TransformWithStateExec => state }
    states match {
      case Seq() => narrow(uncompiled).map(new InlinePlan(_, None, plan.output, session, clock))
      case Seq(state) =>
        for {
          (partitioning, below) <- exchanged(state.child)
          before <- narrow(below)
          after <- narrow(uncompiled.transform { case `state` => HeldRows(state.output)() })
        } yield new InlinePlan(
          before,
          Some((new StatefulStage(state, partitioning), after)),
          plan.output,
          session,
          clock
        )
      case _ => None
    }
  }

  /** The partitioning by key below a stateful operator, and the plan below that. */
  private def exchanged(plan: SparkPlan): Option[(HashPartitioning, SparkPlan)] = plan match {
    case SortExec(_, false, child, _) => exchanged(child)
    case exchange: ShuffleExchangeExec => Option(exchange.outputPartitioning).collect {
        case byKey: HashPartitioning => (byKey, exchange.child)
      }
    case _ => None
  }

  /** Prepare a plan without exchanges, whose leaf becomes one for held rows; None for any other plan. */
  private def narrow(plan: SparkPlan): Option[PreparedStage] = {
    val held = plan.transform { case scan: RDDScanExec => HeldRows(scan.output)() }
    val isNarrow = !held.exists {
      case _: ProjectExec | _: FilterExec | _: GenerateExec | _: SerializeFromObjectExec | _: HeldRows => false
      case _ => true
    }
    Option.when(isNarrow)(PreparedStage.of(held))
  }
}
