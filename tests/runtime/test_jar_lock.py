"""The lock of the jars, and what `lock_jars` writes."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from glassflow_dagster.runtime import lock_jars
from glassflow_dagster.runtime.jar_lock import IVY_FILE, JAR_GROUPS, LOCK_FILE, Jar, lock_text, locked_jars

POM = """\
<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{name}</artifactId>
<version>1.0</version><dependencies>{dependencies}</dependencies></project>
"""
DEPENDENCY = """\
<dependency><groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version></dependency>
"""
IVY = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="test" module="test"/>
  <configurations><conf name="spark"/><conf name="gs"/></configurations>
  <dependencies>
    <dependency org="org.example" name="needs" rev="1.0" conf="spark->default"/>
    <dependency org="org.example" name="big" rev="1.0" transitive="false" conf="gs->master">
      <artifact name="big" type="jar" m:classifier="shaded" conf="gs"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="repository"/>
  <resolvers>
    <ibiblio name="repository" m2compatible="true" root="{root}"/>
  </resolvers>
</ivysettings>
"""


def test_the_lock_is_that_of_ivy_xml() -> None:
    """After a change of ivy.xml: python -m glassflow_dagster.runtime.lock_jars."""
    content = tomllib.loads(LOCK_FILE.read_text())
    assert content.pop("ivy") == hashlib.sha256(IVY_FILE.read_bytes()).hexdigest()
    configurations = set(re.findall(r'<conf name="(\w+)"', IVY_FILE.read_text()))
    assert content.keys() == configurations == set(JAR_GROUPS)


@pytest.mark.parametrize("group", JAR_GROUPS)
def test_each_group_has_the_modules_that_ivy_xml_names(group: str) -> None:
    jars = locked_jars(group)
    locked = {(jar.group, jar.artifact, jar.version) for jar in jars}
    dependencies = re.findall(
        r'<dependency org="([^"]+)" name="([^"]+)" rev="([^"]+)"[^>]*? conf="(\w+)->', IVY_FILE.read_text()
    )
    named = {tuple(module) for *module, configuration in dependencies if configuration == group}
    assert named
    assert named <= locked
    # Of one folder.
    assert len({jar.name for jar in jars}) == len(jars)


def test_a_text_of_the_lock_reads_back() -> None:
    plain, shaded = Jar("org.a", "b", "1", "", "0" * 64), Jar("org.a", "b", "1", "shaded", "1" * 64)
    content = tomllib.loads(lock_text({"spark": [shaded, plain]}, b"ivy"))
    assert content["spark"] == {"org.a:b:1": "0" * 64, "org.a:b:1:shaded": "1" * 64}
    assert (plain.path, shaded.path) == ("org/a/b/1/b-1.jar", "org/a/b/1/b-1-shaded.jar")


def test_a_lock_has_what_ivy_resolves_with_its_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"needs-1.0.jar": b"needs", "needed-1.0.jar": b"needed", "big-1.0-shaded.jar": b"big"}
    for name, needed in {"needs": ["needed"], "needed": [], "big": ["absent"]}.items():
        folder = tmp_path / "org" / "example" / name / "1.0"
        folder.mkdir(parents=True)
        dependencies = "".join(DEPENDENCY.format(name=each) for each in needed)
        (folder / f"{name}-1.0.pom").write_text(POM.format(name=name, dependencies=dependencies))
        for file, content in contents.items():
            if file.startswith(f"{name}-"):
                (folder / file).write_bytes(content)
    ivy, settings, lock = tmp_path / "ivy.xml", tmp_path / "settings.xml", tmp_path / "jars.lock"
    ivy.write_text(IVY)
    settings.write_text(IVY_SETTINGS.format(root=tmp_path.as_uri()))
    monkeypatch.setenv("GLASSFLOW_IVY_SETTINGS", str(settings))
    monkeypatch.setattr(lock_jars, "IVY_FILE", ivy)
    monkeypatch.setattr(lock_jars, "LOCK_FILE", lock)
    monkeypatch.setattr(lock_jars, "JAR_GROUPS", ("spark", "gs"))
    assert lock_jars.main() == 0
    content = tomllib.loads(lock.read_text())
    sums = {name: hashlib.sha256(body).hexdigest() for name, body in contents.items()}
    assert content["spark"] == {
        "org.example:needed:1.0": sums["needed-1.0.jar"],
        "org.example:needs:1.0": sums["needs-1.0.jar"],
    }
    assert content["gs"] == {"org.example:big:1.0:shaded": sums["big-1.0-shaded.jar"]}
