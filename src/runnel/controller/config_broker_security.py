"""Broker configs of authorization and of the audit log."""

import re

from runnel.controller.config_security import AUTHORIZERS
from runnel.controller.config_types import (
    ConfigType,
    ConfigValue,
    Importance,
    Scope,
    at_least,
    one_of,
    some_principals,
    table,
)
from runnel.controller.config_types import broker_config as _row
from runnel.controller.values import CLUSTER_METADATA, INTERNAL_TOPICS
from runnel.model.limits import TOPIC_NAME_CHARACTERS_MAX

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
SHORT, LONG = ConfigType.SHORT, ConfigType.LONG
MEDIUM, LOW = Importance.MEDIUM, Importance.LOW
FIXED = Scope.READ_ONLY

_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_CHARACTERS_MAX}}}")


def own_topic(value: ConfigValue) -> str | None:
    """A topic that a broker may write to by itself; empty if it does not."""
    name = str(value)
    if not name or (_NAME.fullmatch(name) and name not in (".", "..", CLUSTER_METADATA, *INTERNAL_TOPICS)):
        return None
    return "Must be the name of a topic that is not internal"


SECURITY_CONFIGS = table(
    _row("authorizer.class.name", STRING, "", one_of("", *AUTHORIZERS), LOW, FIXED,
         "Which requests are permitted: all, if this is empty; those that ACLs allow, if it is acl or "
         "org.apache.kafka.metadata.authorizer.StandardAuthorizer."),
    _row("super.users", STRING, "", some_principals, MEDIUM, FIXED,
         "Principals that are permitted everything, separated by semicolons: User:admin;User:CN=broker1. "
         "Brokers and controllers must be among them."),
    _row("allow.everyone.if.no.acl.found", BOOLEAN, "false", None, MEDIUM, FIXED,
         "Whether every principal is permitted everything on a resource to which no ACL applies."),
    _row("audit.log.file", STRING, "", None, MEDIUM, FIXED,
         "The file to which decisions of the authorizer are appended, as one JSON object per line."),
    _row("audit.log.topic", STRING, "", own_topic, MEDIUM, FIXED,
         "The topic to which decisions of the authorizer are written, as one JSON object per record. It is "
         "created if it does not exist."),
    _row("audit.log.topic.replication.factor", SHORT, 3, at_least(1), LOW, FIXED,
         "The replication factor of the audit topic when it is created; a single node uses 1."),
    _row("audit.log.topic.retention.ms", LONG, 30 * 24 * 3600 * 1000, at_least(-1), LOW, FIXED,
         "The retention time of the audit topic when it is created; -1 keeps records without a time limit."),
    _row("audit.log.logger", BOOLEAN, "false", None, MEDIUM, FIXED,
         "Whether decisions of the authorizer are logged by the logger runnel.audit."),
    _row("audit.log.allowed", STRING, "changes", one_of("none", "changes", "all"), MEDIUM, FIXED,
         "Which permitted operations are recorded: none, changes (create, delete, alter), or all."),
    _row("audit.log.repeat.interval.ms", INT, 60000, at_least(0), LOW, FIXED,
         "Within this time, the same decision about a read, write or description is recorded once."),
    _row("audit.log.denials.per.second.max", INT, 100, at_least(1), LOW, FIXED,
         "The maximum rate of recorded denials; further ones are only counted."),
    _row("audit.log.queue.max", INT, 10000, at_least(1), LOW, FIXED,
         "The maximum number of events that wait to be written; further ones are only counted."),
)  # fmt: skip
