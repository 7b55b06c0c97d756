"""The fuzzer through TLS and SASL, against a broker with an authorizer."""
