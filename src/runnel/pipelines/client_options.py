"""Client properties as Spark options, such as `kafka.security.protocol` and `kafka.sasl.password`.

Names are those of Spark's Kafka connector, with or without the prefix. The file that `kafka.properties.file`
names is read by the driver.
Values reach the tasks as they were given: references such as ${env:NAME} are resolved by each task.
"""

from collections.abc import Mapping

from runnel.client.errors import InvalidProperty
from runnel.client.properties import ClientProperties, is_security_name
from runnel.client.security import protocol_of
from runnel.pipelines.errors import BadOption

PREFIX = "kafka."
PROPERTIES_FILE = "kafka.properties.file"


def is_client_option(name: str) -> bool:
    """Is this option, in lower case, a client property of TLS or SASL?"""
    return is_security_name(name.removeprefix(PREFIX))


def read_client_properties(options: Mapping[str, str]) -> ClientProperties:
    """The client properties of options, which take precedence over those of the properties file."""
    given = {name.lower(): value for name, value in options.items()}
    path = given.get(PROPERTIES_FILE)
    # Sorted: names with the prefix come later and take precedence.
    own = {
        name.removeprefix(PREFIX): given[name]
        for name in sorted(given, key=lambda name: name.startswith(PREFIX))
        if is_client_option(name)
    }
    try:
        properties = ClientProperties.from_file(path) if path else ClientProperties()
        properties = properties.with_more(own)
        protocol_of(properties)
        return properties
    except InvalidProperty as error:
        raise BadOption(str(error)) from None


def connection_options(bootstrap: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The options with which the format runnel connects to a cluster."""
    own = {PREFIX + name: value for name, value in properties.items() if is_security_name(name)}
    return {"kafka.bootstrap.servers": bootstrap, **own}
