"""Definitions that cannot run, as Dagster shows them: each one asset that fails with its mistakes.

The other files load all the same, and nothing goes missing in silence: a sensor materializes such an asset once when it
appears and once whenever its mistakes change. The run fails, so the asset turns red and the alert for failed runs goes
out. A stream that runs is not touched by any of this; it goes on by the definition that it was started with.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import dagster as dg

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import identifier
from glassflow_dagster.orchestration.specs import code_reference

LOOK_INTERVAL = 30  # seconds between two looks for such assets


def build_broken_definitions(broken: Mapping[Path, GlassflowError]) -> dg.Definitions:
    """Build one failing asset for each file, and the sensor that lets them fail; nothing where no file is broken."""
    if not broken:
        return dg.Definitions()
    assets = [
        _broken_asset(name, file, error) for name, (file, error) in zip(_names(broken), broken.items(), strict=True)
    ]
    sensor = dg.AutomationConditionSensorDefinition(
        name="definition_errors",
        description="Runs the assets of definitions with mistakes once, so that they are red and an alert goes out.",
        target=dg.AssetSelection.assets(*assets),
        minimum_interval_seconds=LOOK_INTERVAL,
        # The one that Dagster would add by itself is created stopped.
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    return dg.Definitions(assets=assets, sensors=[sensor])


def _names(files: Mapping[Path, GlassflowError]) -> Sequence[str]:
    """Name the assets after the files' stems; a stem that is taken gets its ending, or a number."""
    names: list[str] = []
    for file in files:
        stem, whole = identifier(file.stem), identifier(file.name)
        numbered = (f"{whole}_{number}" for number in range(2, len(files) + 2))
        names.append(next(name for name in (stem, whole, *numbered) if name not in names))
    return names


def _broken_asset(name: str, file: Path, error: GlassflowError) -> dg.AssetsDefinition:
    problems = str(error)
    shown = f"```\n{problems}\n```"

    @dg.asset(
        key=dg.AssetKey([name]),
        group_name=identifier(file.stem),
        description=(
            f"`{file.name}` has mistakes, so its pipeline is not loaded; all others are. A stream of it that runs "
            f"goes on by the definition it was started with. Correct the file, then reload the definitions.\n\n{shown}"
        ),
        kinds={"yaml"} if file.suffix != ".json" else {"json"},
        metadata={"problems": dg.MetadataValue.md(shown), **code_reference(file)},
        # Other mistakes are another version, which the condition looks for.
        code_version=hashlib.sha256(problems.encode()).hexdigest()[:12],
        automation_condition=dg.AutomationCondition.missing().newly_true()
        | dg.AutomationCondition.code_version_changed(),
    )
    def definition() -> None:
        raise dg.Failure(description=problems, metadata={"problems": dg.MetadataValue.md(shown)}, allow_retries=False)

    return definition
