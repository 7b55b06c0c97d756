"""Jars by their Maven coordinates, resolved by Maven with the settings of the machine."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tools.fetch.cache import cached
from tools.fetch.programs import Unavailable, find

TIMEOUT_S = 900.0
Coordinates = tuple[str, str, str]
"""Group, artifact, version."""


def jars(name: str, artifacts: Iterable[Coordinates], purpose: str, transitive: bool = True) -> Path:
    """The cached folder `name` that holds the jars of the artifacts, and of what they depend on."""

    def fill(folder: Path) -> None:
        maven = find("mvn", purpose)
        project = folder / "pom.xml"
        project.write_text(pom(artifacts, transitive))
        command = [maven, "-q", "-B", "-f", str(project), "dependency:copy-dependencies"]
        print(f"fetching {name} with Maven", flush=True)
        try:
            subprocess.run(
                [*command, f"-DoutputDirectory={folder}"],
                check=True,
                timeout=TIMEOUT_S,
                capture_output=True,
                text=True,
            )
        except subprocess.CalledProcessError as error:
            raise Unavailable(
                f"Maven could not fetch {name}, needed to {purpose}:\n{error.stdout}"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"Maven did not fetch {name} within {TIMEOUT_S:.0f} s") from error

    return cached(name, fill)


def pom(artifacts: Iterable[Coordinates], transitive: bool) -> str:
    """A project whose only content is its dependencies."""
    exclusions = (
        ""
        if transitive
        else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{exclusions}</dependency>"
        for group, artifact, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>runnel</groupId><artifactId>fetched</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
