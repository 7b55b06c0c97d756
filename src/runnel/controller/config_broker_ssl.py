"""Broker configs of TLS. Each may be set for one listener: `listener.name.<name>.ssl.keystore.location`."""

from runnel.controller.config_types import (
    ConfigType,
    ConfigValue,
    Importance,
    Scope,
    one_of,
    one_of_any_case,
    some_of,
    table,
)
from runnel.controller.config_types import broker_config as _row

BOOLEAN, STRING, LIST, PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
MEDIUM, LOW = Importance.MEDIUM, Importance.LOW
FIXED, BROKER = Scope.READ_ONLY, Scope.PER_BROKER

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("JKS", "PKCS12", "PEM")


def _tls_versions(value: ConfigValue) -> str | None:
    return some_of(*TLS_VERSIONS)(value) if value else "At least one version is required"


SSL_CONFIGS = table(
    # The key and the certificate of this node.
    _row("ssl.keystore.type", STRING, "JKS", one_of_any_case(*STORE_TYPES), MEDIUM, BROKER,
         "The format of the key store: PEM, PKCS12 or JKS."),
    _row("ssl.keystore.location", STRING, None, None, MEDIUM, BROKER,
         "The file with the private key and the certificate chain."),
    _row("ssl.keystore.password", PASSWORD, None, None, MEDIUM, BROKER,
         "The password of the key store. PEM files have none."),
    _row("ssl.key.password", PASSWORD, None, None, MEDIUM, BROKER,
         "The password of the private key."),
    _row("ssl.keystore.key", PASSWORD, None, None, MEDIUM, BROKER,
         "The private key itself, in PEM format."),
    _row("ssl.keystore.certificate.chain", PASSWORD, None, None, MEDIUM, BROKER,
         "The certificate chain itself, in PEM format."),
    # The certificates that this node trusts.
    _row("ssl.truststore.type", STRING, "JKS", one_of_any_case(*STORE_TYPES), MEDIUM, BROKER,
         "The format of the trust store: PEM, PKCS12 or JKS."),
    _row("ssl.truststore.location", STRING, None, None, MEDIUM, BROKER,
         "The file with the certificates of trusted CAs."),
    _row("ssl.truststore.password", PASSWORD, None, None, MEDIUM, BROKER,
         "The password of the trust store. PEM files have none."),
    _row("ssl.truststore.certificates", PASSWORD, None, None, MEDIUM, BROKER,
         "The certificates of trusted CAs themselves, in PEM format."),
    # Connections.
    _row("ssl.protocol", STRING, "TLSv1.3", one_of("TLS", *TLS_VERSIONS), MEDIUM, BROKER,
         "The newest version of TLS; TLS stands for all of ssl.enabled.protocols."),
    _row("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", _tls_versions, MEDIUM, BROKER,
         "The versions of TLS that connections may use."),
    _row("ssl.cipher.suites", LIST, "", None, MEDIUM, BROKER,
         "The cipher suites of TLS 1.2, by their IANA or OpenSSL names; empty for the secure ones of "
         "OpenSSL. Those of TLS 1.3 cannot be chosen."),
    _row("ssl.endpoint.identification.algorithm", STRING, "https", one_of("https", ""), LOW, BROKER,
         "Whether the host names of other nodes are verified against their certificates; empty for no."),
    _row("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), MEDIUM, BROKER,
         "Whether clients must (required), may (requested) or need not (none) send a certificate. "
         "For SASL_SSL only the form with the prefix of the listener applies."),
    _row("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW, FIXED,
         "How the distinguished name of a client's certificate becomes the name of its principal: rules "
         "of the form RULE:pattern/replacement/[LU], or DEFAULT for the name itself."),
    _row("ssl.allow.dn.changes", BOOLEAN, "false", None, LOW, FIXED,
         "Whether a new certificate of a running node may have another distinguished name."),
    _row("ssl.allow.san.changes", BOOLEAN, "false", None, LOW, FIXED,
         "Whether a new certificate of a running node may lack alternative names of the old one."),
)  # fmt: skip
