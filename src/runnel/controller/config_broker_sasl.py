"""Broker configs of SASL. Most may be set for one listener, some for one of its mechanisms:

listener.name.external.sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
listener.name.external.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule ...
"""

from runnel.controller.config_types import (
    LONG_MAX,
    ConfigType,
    Importance,
    Scope,
    at_least,
    between,
    table,
)
from runnel.controller.config_types import broker_config as _row

STRING, INT, LONG, LIST, PASSWORD = (
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
FIXED = Scope.READ_ONLY

SASL_CONFIGS = table(
    _row("sasl.enabled.mechanisms", LIST, "", None, MEDIUM, FIXED,
         "The mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. A listener "
         "with SASL needs at least one."),
    _row("sasl.jaas.config", PASSWORD, None, None, MEDIUM, FIXED,
         "The line of a login module: what this node authenticates with at other nodes (username, password) "
         "and the users of PLAIN (user_alice). Set it for a mechanism of a listener."),
    _row("sasl.mechanism.inter.broker.protocol", STRING, "", None, MEDIUM, FIXED,
         "The mechanism by which brokers authenticate at each other."),
    _row("sasl.mechanism.controller.protocol", STRING, "", None, HIGH, FIXED,
         "The mechanism by which nodes authenticate at controllers."),
    _row("sasl.server.max.receive.size", INT, 524288, at_least(1), MEDIUM, FIXED,
         "The maximum size of a request before authentication is complete. At most 64 KiB are accepted, "
         "whatever is set."),
    _row("connections.max.reauth.ms", LONG, 0, at_least(0), MEDIUM, FIXED,
         "How long an authentication is valid; clients authenticate again before. 0 for as long as the "
         "credential."),
    _row("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW, FIXED,
         "How late a failed authentication is answered. Many failures from one address are answered later."),
    # OAUTHBEARER.
    _row("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM, FIXED,
         "The keys of the identity provider (JWKS): an https URL, an http URL of this machine, or a file "
         "(file:///path). Without keys OAUTHBEARER cannot be enabled."),
    _row("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3600000, between(1000, LONG_MAX), LOW, FIXED,
         "How often the keys are read again. A token with an unknown key causes it as well."),
    _row("sasl.oauthbearer.expected.issuer", STRING, None, None, LOW, FIXED,
         "The issuer that tokens must name; required for OAUTHBEARER."),
    _row("sasl.oauthbearer.expected.audience", LIST, "", None, LOW, FIXED,
         "The audiences of which tokens must name one; required for OAUTHBEARER."),
    _row("sasl.oauthbearer.clock.skew.seconds", INT, 30, between(0, 3600), LOW, FIXED,
         "By how much the clocks of the identity provider and this node may differ."),
    _row("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, FIXED,
         "The claim with the name of the principal."),
    # Delegation tokens.
    _row("delegation.token.secret.key", PASSWORD, None, None, MEDIUM, FIXED,
         "The secret from which the passwords of delegation tokens are derived, the same on all nodes. "
         "Without it there are no tokens."),
    _row("delegation.token.max.lifetime.ms", LONG, 604800000, at_least(1), MEDIUM, FIXED,
         "The maximum lifetime of a delegation token."),
    _row("delegation.token.expiry.time.ms", LONG, 86400000, at_least(1), MEDIUM, FIXED,
         "How long a delegation token is valid until it is renewed."),
    _row("delegation.token.expiry.check.interval.ms", LONG, 3600000, at_least(1), LOW, FIXED,
         "How often expired delegation tokens are deleted."),
)  # fmt: skip

LISTENER_SASL_CONFIGS = frozenset(
    name for name in SASL_CONFIGS if not name.startswith(("delegation.", "sasl.mechanism."))
)
"""What may be set for one listener."""

IGNORED_SASL_CONFIGS = frozenset({
    "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules", "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file", "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class",
    "sasl.server.callback.handler.class",
})  # fmt: skip
"""Kafka's configs of SASL that have no effect here."""
