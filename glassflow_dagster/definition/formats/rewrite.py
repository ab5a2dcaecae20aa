"""Rewrite GlassFlow's older formats, v1 and v2, as v3.

The content tells an older definition: `version: v1` or `v2` (`2.0.0` is v2), or no version and `source` instead of
v3's `sources`. v1 and v2 are read as one format, because files in use mix both: flat and nested connections,
`id_field` and `key`, `table_mapping`, `schema.fields` and `mapping`. Two readers would reject the mixed files, or
repeat every rule.

Texts are rewritten before any `${VAR}` is replaced, so a reference stays a reference, and loading an older file is the
same as loading the output of `convert`.
"""

from dataclasses import dataclass, field, replace
from itertools import chain

from glassflow_dagster.definition.formats.draft import ABSENT, Raw, WithOrigin, keep, resolve
from glassflow_dagster.definition.formats.join import rewrite_join
from glassflow_dagster.definition.formats.older import part_of
from glassflow_dagster.definition.formats.references import check_references
from glassflow_dagster.definition.formats.resources import rewrite_resources
from glassflow_dagster.definition.formats.sink import rewrite_sink
from glassflow_dagster.definition.formats.sources import rewrite_source, undeclared_fields, undeclared_reads
from glassflow_dagster.definition.formats.transforms import rewrite_transforms
from glassflow_dagster.definition.problems import Problem

OLDER_VERSIONS = ("v1", "v2", "2.0.0")


@dataclass(frozen=True)
class Rewritten:
    """An older definition rewritten as v3; a v3 definition is kept as it is.

    definition: the v3 object.
    problems: what could not be rewritten.
    undeclared: fields that expressions read and no schema declares.
    ignored: unknown keys, which were removed.
    origins: v3 path -> path in the older file; empty for a v3 file.
    """

    definition: Raw
    problems: tuple[Problem, ...] = ()
    undeclared: tuple[Problem, ...] = ()
    origins: dict[str, str] = field(default_factory=dict)
    ignored: tuple[Problem, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the author; without repetitions, since one key of the older file may become several in v3."""
        return tuple(dict.fromkeys(f"{warning.path}: {warning.text}" for warning in (*self.ignored, *self.undeclared)))

    def all_problems(self, further: list[Problem]) -> list[Problem]:
        """Return all problems to report of an invalid definition; an ignored key may be a misspelt required one."""
        # Without repetitions: one older key may have become several of v3's, each with the same problem.
        return list(dict.fromkeys([*self.ignored, *self.problems, *further]))

    def at_origin(self, problems: list[Problem]) -> list[Problem]:
        """Return problems of the v3 definition with their paths in the file; a v3 file keeps its paths."""
        return [self._origin(problem) for problem in problems] if self.origins else problems

    def _origin(self, problem: Problem) -> Problem:
        """Return a problem with its path in the older file: of the nearest enclosing part that has an origin.

        Without such a part, the v3 path stays, and the text says so.
        """
        path, inner_path = problem.path, ""
        while path and path not in self.origins:
            cut = max(path.rfind("."), path.rfind("["), 0)
            path, inner_path = path[:cut], path[cut:] + inner_path
        if path:
            return replace(problem, path=self.origins[path] + inner_path)
        return replace(problem, text=f"{problem.text} (the path is that of the v3 form, which `convert` prints)")


def is_older(raw: Raw) -> bool:
    """Return whether a parsed file is in format v1 or v2.

    By its version; a file without one is older when it has `source`, not v3's `sources`.
    """
    version = raw.get("version")
    if version in OLDER_VERSIONS:
        return True
    return not version and "source" in raw and "sources" not in raw


def rewrite(raw: Raw) -> Rewritten:
    """Rewrite an older definition as v3; `check_shape` must have accepted it. Does not change `raw`."""
    problems: list[Problem] = []
    topics = [(f"source.topics[{i}]", topic) for i, topic in enumerate(part_of(raw, "source")["topics"])]
    # For each topic: the fields that its expressions read without a declaration.
    undeclared = [undeclared_fields(raw, path, topic) for path, topic in topics]
    draft = {
        "version": "v3",
        **keep(raw, "", "pipeline_id", "name", "metadata"),
        "sources": WithOrigin(
            "source.topics",
            [rewrite_source(raw, path, topic, names) for (path, topic), names in zip(topics, undeclared, strict=True)],
        ),
        "transforms": rewrite_transforms(raw, topics, problems),
        "join": rewrite_join(raw, problems),
        "sink": WithOrigin("sink", rewrite_sink(raw, problems)),
        "resources": WithOrigin("pipeline_resources", rewrite_resources(raw, topics) or ABSENT),
    }
    check_references(raw, topics, problems)
    origins: dict[str, str] = {}
    definition = resolve(draft, "", origins)
    warnings = chain.from_iterable(
        undeclared_reads(raw, path, topic, names) for (path, topic), names in zip(topics, undeclared, strict=True)
    )
    return Rewritten(definition, tuple(problems), undeclared=tuple(warnings), origins=origins)
