"""Shows each invalid pipeline definition in Dagster as an asset whose run fails with the errors.

The other definitions load as usual. A sensor materializes such an asset once when it appears and once whenever its
errors change; the run fails, so the asset turns red and the alert for failed runs is sent. A running stream of the
pipeline is not affected: it continues with the definition that it was started with.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import identifier
from glassflow_dagster.orchestration.specs import code_reference
from glassflow_dagster.runtime.safe_text import code, code_block

EVALUATION_INTERVAL = 30  # seconds between the sensor's evaluations


@dataclass(frozen=True)
class InvalidDefinitions:
    """The failing assets of invalid files, and what runs them."""

    assets: tuple[dg.AssetKey, ...]
    definitions: dg.Definitions


def build_invalid_definitions(
    name: str, invalid: Mapping[Path, GlassflowError], prefix: tuple[str, ...], status: dg.DefaultSensorStatus
) -> InvalidDefinitions:
    """Build a failing asset for each invalid file, and the sensor that materializes them; nothing without such files.

    name: begins the name of the sensor.
    prefix: of the assets' keys.
    """
    if not invalid:
        return InvalidDefinitions((), dg.Definitions())
    assets = [
        _failing_asset(dg.AssetKey([*prefix, file_name]), file, error)
        for file_name, (file, error) in zip(_names(invalid), invalid.items(), strict=True)
    ]
    sensor = dg.AutomationConditionSensorDefinition(
        name=f"{name}__definition_errors",
        description="Runs the assets of invalid definitions once, so that they fail and an alert is sent.",
        target=dg.AssetSelection.assets(*assets),
        minimum_interval_seconds=EVALUATION_INTERVAL,
        default_status=status,
    )
    return InvalidDefinitions(tuple(asset.key for asset in assets), dg.Definitions(assets=assets, sensors=[sensor]))


def _names(files: Mapping[Path, GlassflowError]) -> Sequence[str]:
    """Return a unique asset name for each file: its stem, else its name with the suffix, else that with a number."""
    names: list[str] = []
    for file in files:
        stem, full = identifier(file.stem), identifier(file.name)
        numbered = (f"{full}_{number}" for number in range(2, len(files) + 2))
        names.append(next(name for name in (stem, full, *numbered) if name not in names))
    return names


def _failing_asset(key: dg.AssetKey, file: Path, error: GlassflowError) -> dg.AssetsDefinition:
    """Build the asset of an invalid file: it shows the errors in its description and fails with them."""
    problems = str(error)
    shown = code_block(problems)

    @dg.asset(
        key=key,
        group_name=identifier(file.stem),
        description=(
            f"{code(file.name)} is invalid, so its pipeline is not loaded; all others are. A running stream of this "
            "pipeline continues with the definition it was started with. Correct the file, then reload the "
            f"definitions.\n\n{shown}"
        ),
        kinds={"yaml"} if file.suffix != ".json" else {"json"},
        metadata={"problems": dg.MetadataValue.md(shown), **code_reference(file)},
        # Other errors change the code version, which the automation condition reacts to.
        code_version=hashlib.sha256(problems.encode()).hexdigest()[:12],
        # Runs once when it is new, and again when its errors change.
        automation_condition=dg.AutomationCondition.missing().newly_true()
        | dg.AutomationCondition.code_version_changed(),
    )
    def definition() -> None:
        raise dg.Failure(description=problems, metadata={"problems": dg.MetadataValue.md(shown)}, allow_retries=False)

    return definition
