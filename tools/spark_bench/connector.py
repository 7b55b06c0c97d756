"""Spark's own Kafka connector: its jars, from a cache or from Maven."""

import shutil
import subprocess
from pathlib import Path

VERSION = "4.2.0"
FOLDER = Path.home() / ".cache" / "runnel-conformance" / "spark-jars"
JARS = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
]


class NoConnector(Exception):
    """The connector's jars are not here and cannot be fetched."""


def connector_jars(folder: Path = FOLDER) -> list[Path]:
    """The jars that `spark.jars` must name for the format "kafka"."""
    wanted = [folder / f"{name}-{version}.jar" for _, name, version in JARS]
    if not all(jar.exists() for jar in wanted):
        _fetch(folder)
    missing = [jar.name for jar in wanted if not jar.exists()]
    if missing:
        raise NoConnector(f"Maven did not bring {', '.join(missing)}")
    return wanted


def _fetch(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise NoConnector("Maven, which would fetch Spark's Kafka connector, is not here")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_pom())
    command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    try:
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoConnector(f"Maven could not fetch Spark's Kafka connector: {error}") from error


def _pom() -> str:
    # Named one by one: the connector asks for a version of its token provider that does not exist.
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        "</dependency>"
        for group, name, version in JARS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>runnel</groupId><artifactId>spark-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
