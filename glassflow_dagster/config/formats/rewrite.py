"""GlassFlow's older formats, v1 and v2, rewritten as v3.

A definition is taken for an older one by its content: `version: v1` or `v2` (`2.0.0` is v2), or no version and `source`
where v3 has `sources`. v1 and v2 are read as one format, because files in use mix their shapes: flat and nested
connections, `id_field` and `key`, `table_mapping`, `schema.fields` and `mapping`. Two readers would refuse
the mixed files, or say every rule twice.

The texts are rewritten before any `${VAR}` is filled in, so a reference stays one, and loading an older file is the
same as loading what `convert` prints.
"""

from dataclasses import dataclass, field, replace
from itertools import chain

from glassflow_dagster.config.formats.draft import ABSENT, At, Raw, keep, resolve
from glassflow_dagster.config.formats.join import rewrite_join
from glassflow_dagster.config.formats.older import part_of
from glassflow_dagster.config.formats.references import check_references
from glassflow_dagster.config.formats.resources import rewrite_resources
from glassflow_dagster.config.formats.sink import rewrite_sink
from glassflow_dagster.config.formats.sources import rewrite_source, undeclared_fields, undeclared_reads
from glassflow_dagster.config.formats.transforms import rewrite_transforms
from glassflow_dagster.config.problems import Problem

OLDER_VERSIONS = ("v1", "v2", "2.0.0")


@dataclass(frozen=True)
class Rewritten:
    """An older definition as v3.

    `definition` is the v3 object, `problems` what could not be rewritten, `undeclared` fields that only expressions
    name, `ignored` the keys that were left out since nobody knows them, `origins` the path that each v3 path had.
    """

    definition: Raw
    problems: tuple[Problem, ...] = ()
    undeclared: tuple[Problem, ...] = ()
    origins: dict[str, str] = field(default_factory=dict)
    ignored: tuple[Problem, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is right and may be meant otherwise; the same key of several sources is one key of an older file."""
        return tuple(dict.fromkeys(f"{noted.path}: {noted.text}" for noted in (*self.ignored, *self.undeclared)))

    def all_problems(self, further: list[Problem]) -> list[Problem]:
        """List all that is to be told of a definition that is refused: an ignored key may be what is missing."""
        # One older key may have become several of v3's, each with the same mistake.
        return list(dict.fromkeys([*self.ignored, *self.problems, *further]))

    def at_origin(self, found: list[Problem]) -> list[Problem]:
        """Tell problems at their place in the file; a file in v3 is its own origin."""
        return [self._origin(problem) for problem in found] if self.origins else found

    def _origin(self, problem: Problem) -> Problem:
        """Move a problem of the v3 definition to where its cause stands in the older file."""
        path, rest = problem.path, ""
        while path and path not in self.origins:
            cut = max(path.rfind("."), path.rfind("["), 0)
            path, rest = path[:cut], path[cut:] + rest
        if path:
            return replace(problem, path=self.origins[path] + rest)
        return replace(problem, text=f"{problem.text} (the path is that of the v3 form, which `convert` prints)")


def is_older(raw: Raw) -> bool:
    """Whether a parsed file is written in v1 or v2."""
    version = raw.get("version")
    if version in OLDER_VERSIONS:
        return True
    return not version and "source" in raw and "sources" not in raw


def rewrite(raw: Raw) -> Rewritten:
    """Rewrite an older definition, whose shape was checked, as v3; nothing of `raw` is changed."""
    found: list[Problem] = []
    topics = [(f"source.topics[{i}]", topic) for i, topic in enumerate(part_of(raw, "source")["topics"])]
    undeclared = [undeclared_fields(raw, at, topic) for at, topic in topics]
    draft = {
        "version": "v3",
        **keep(raw, "", "pipeline_id", "name", "metadata"),
        "sources": At(
            "source.topics",
            [rewrite_source(raw, at, topic, names) for (at, topic), names in zip(topics, undeclared, strict=True)],
        ),
        "transforms": rewrite_transforms(raw, topics, found),
        "join": rewrite_join(raw, found),
        "sink": At("sink", rewrite_sink(raw, found)),
        "resources": At("pipeline_resources", rewrite_resources(raw, topics) or ABSENT),
    }
    check_references(raw, topics, found)
    origins: dict[str, str] = {}
    definition = resolve(draft, "", origins)
    reads = (undeclared_reads(raw, *topic, names) for topic, names in zip(topics, undeclared, strict=True))
    return Rewritten(definition, tuple(found), tuple(chain.from_iterable(reads)), origins)
