"""Delegation tokens by their HMACs, which are not stored: each is derived once, and not by every search."""

from collections.abc import Callable, Mapping

from runnel.controller.values import DelegationToken


class TokenIds:
    """The ids of tokens by HMAC; of removed ones as well, until there are new ones."""

    def __init__(self) -> None:
        self._ids: dict[bytes, str] = {}
        self._hmacs: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._hmacs)

    def unknown(self, tokens: Mapping[str, DelegationToken]) -> list[str]:
        """The tokens whose HMAC was not derived yet."""
        return [token_id for token_id in tokens if token_id not in self._hmacs]

    def add(self, hmacs: Mapping[str, bytes]) -> None:
        """Add tokens with their HMACs."""
        self._hmacs.update(hmacs)
        self._ids.update((value, token_id) for token_id, value in hmacs.items())

    def find(
        self, tokens: Mapping[str, DelegationToken], value: bytes, derive: Callable[[str], bytes]
    ) -> str | None:
        """The token with this HMAC, if it is one of these."""
        if self._ids.get(value) not in tokens:
            self._update(tokens, derive)
        token_id = self._ids.get(value)
        return token_id if token_id in tokens else None

    def _update(self, tokens: Mapping[str, DelegationToken], derive: Callable[[str], bytes]) -> None:
        self.add({token_id: derive(token_id) for token_id in self.unknown(tokens)})
        if len(self._hmacs) > len(tokens):
            for token_id in self._hmacs.keys() - tokens.keys():
                del self._ids[self._hmacs.pop(token_id)]
