"""Principals as text and across nodes."""

from runnel.security.principal import ANONYMOUS, Principal


def test_a_principal_is_written_as_acls_name_it():
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert str(Principal("Group", "a:b")) == "Group:a:b"
