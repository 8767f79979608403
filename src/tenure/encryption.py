"""``Encryption``: the keys with which what users give is encrypted before it is stored (AES-256-GCM).

``core.sealing`` says what is encrypted, and to what it is bound. Needs the extra ``encryption``.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping

from tenure.core.errors import ConfigError
from tenure.core.sealing import KEY_ID

VARIABLE = "TENURE_ENCRYPTION_KEYS"
_KEY_BYTES, _NONCE_BYTES = 32, 12
_NONE = "-"
_FORM = "write id=<32 bytes as base64>, several separated by commas, the current one first"


class Encryption:
    """Keys by their ids: what is written is encrypted with ``current``, what is read with whichever it names.

    ``keys``: 32 random bytes each; ids of letters, digits, ``.``, ``_`` and ``-``. ``current`` None: read what is encrypted, write
    plain (the first step of turning it on, and the last of turning it off). Raises ConfigError.

    A key should encrypt no more than 2**32 messages (nonces are random): some three for a run, so rotate before a billion runs.
    """

    def __init__(self, keys: Mapping[str, bytes], current: str | None) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise ConfigError("encryption needs the package cryptography: pip install 'tenure[encryption]'") from error
        for key_id, key in keys.items():
            if not isinstance(key_id, str) or re.fullmatch(KEY_ID, key_id) is None:
                msg = f"encryption: a key's id has 1 to 64 letters, digits, '.', '_' and '-', got {key_id!r}"
                raise ConfigError(msg)
            if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
                raise ConfigError(f"encryption: key {key_id!r} must be {_KEY_BYTES} random bytes")
        if current is not None and current not in keys:
            raise ConfigError(
                f"encryption: the current key {current!r} is not among the keys: {', '.join(keys) or 'none'}"
            )
        self._keys = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._invalid = InvalidTag
        self._current = current or ""
        self._seal = self._keys[current] if current is not None else None

    @classmethod
    def from_env(cls) -> Encryption:
        """The keys of ``$TENURE_ENCRYPTION_KEYS``. Raises ConfigError, also where it is not set.

        ``2026-11=<base64>,2026-08=<base64>``: the first is the current one; a first item ``-`` says that none is.
        """
        text = os.environ.get(VARIABLE, "").strip()
        if not text:
            raise ConfigError(f"${VARIABLE} is not set: {_FORM}")
        first, *rest = (item.strip() for item in text.split(","))
        keys: dict[str, bytes] = {}
        for place, item in enumerate(rest if first == _NONE else (first, *rest), start=1):
            key_id, equals, said = item.partition("=")
            try:  # what is wrong is told by its place: it may be a key
                key = base64.b64decode(said, altchars=b"-_" if set(said) & {"-", "_"} else None, validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if not equals or len(key) != _KEY_BYTES:
                raise ConfigError(f"${VARIABLE}: key number {place} is not readable: {_FORM}")
            if key_id in keys:
                raise ConfigError(f"${VARIABLE}: key {key_id!r} is there twice")
            keys[key_id] = key
        return cls(keys, None if first == _NONE else next(iter(keys)))

    def __repr__(self) -> str:
        return f"<Encryption with {self._current or 'no key'!r}; knows {', '.join(self._keys) or 'none'}>"

    @property
    def current(self) -> str:
        """Id of the key that is written with; empty: none."""
        return self._current

    def has(self, key_id: str) -> bool:
        """Whether this key is known."""
        return key_id in self._keys

    def seal(self, data: bytes, about: bytes) -> bytes:
        """Nonce and ciphertext of ``data``, bound to ``about``. Raises ConfigError where no key is current."""
        if self._seal is None:
            raise ConfigError("encryption: no key is current")
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._seal.encrypt(nonce, data, about)

    def open(self, key_id: str, box: bytes, about: bytes) -> bytes | None:
        """What was sealed; None if it was changed, is about something else, or was sealed with another key of that id."""
        try:
            return self._keys[key_id].decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], about)
        except (self._invalid, ValueError):  # ValueError: too short for a nonce
            return None


def given(encryption: object, namespace: str) -> Encryption | None:
    """What an app was given, else what the environment says, else none. Raises ConfigError."""
    if encryption is None:
        return Encryption.from_env() if os.environ.get(VARIABLE, "").strip() else None
    if not isinstance(encryption, Encryption):
        msg = f"app {namespace}: encryption must be a tenure.Encryption or None, got {type(encryption).__name__}"
        raise ConfigError(msg)
    return encryption
