"""Broker configs of encryption at rest: where the master keys come from. None is Kafka's."""

from runnel.controller.config_types import ConfigType, Importance, Scope, at_least, table
from runnel.controller.config_types import broker_config as _row

MASTER_KEY_FILE = "encryption.master.key.file"
MASTER_KEY_COMMAND = "encryption.master.key.command"
MASTER_KEY_REFRESH_MS = "encryption.master.key.refresh.ms"

ENCRYPTION_CONFIGS = table(
    _row(MASTER_KEY_FILE, ConfigType.STRING, None, None, Importance.HIGH, Scope.READ_ONLY,
         "A file with master keys, one per line, each 32 bytes in hexadecimal or Base64. The first encrypts, "
         "the others decrypt what was encrypted before a rotation. Only its owner may have access to it."),
    # Arguments of a command may be secret.
    _row(MASTER_KEY_COMMAND, ConfigType.PASSWORD, None, None, Importance.HIGH, Scope.READ_ONLY,
         "A command that prints the master keys, in the format of encryption.master.key.file. It is run "
         "without a shell."),
    _row(MASTER_KEY_REFRESH_MS, ConfigType.INT, 60000, at_least(0), Importance.LOW, Scope.READ_ONLY,
         "How often the master keys are read again. If the first one has changed, it is used from then on, "
         "and the keys of all segments are encrypted with it. 0: only at the start."),
)  # fmt: skip
