"""Who may ask and who may change: the token file, and the comparison that tells nothing by its time."""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from pathlib import Path

from biqe.errors import UnreadableFile

READ, WRITE = "read", "write"
SHORTEST = 16


@dataclass(frozen=True)
class Tokens:
    """Digests of the tokens; a write token may read too."""

    read: tuple[bytes, ...]
    write: tuple[bytes, ...]

    @classmethod
    def of_file(cls, path: Path) -> Tokens:
        """Lines of ``read TOKEN`` and ``write TOKEN``; empty lines and those that begin with # say nothing."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise UnreadableFile(f"token file {path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"token file {path} is not UTF-8 text") from error
        found: dict[str, list[bytes]] = {READ: [], WRITE: []}
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            # The line itself is never shown: it may hold a secret.
            if len(words) != 2 or words[0] not in found:
                raise UnreadableFile(
                    f"token file {path}, line {number}: a line is 'read TOKEN' or 'write TOKEN'",
                    hint="make a token with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
                )
            if len(words[1]) < SHORTEST or not words[1].isascii():
                raise UnreadableFile(
                    f"token file {path}, line {number}: a token has at least {SHORTEST} ASCII characters",
                    hint="make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
                )
            found[words[0]].append(_digest(words[1]))
        if not any(found.values()):
            raise UnreadableFile(f"token file {path} holds no token", hint="a line is 'read TOKEN' or 'write TOKEN'")
        return cls(tuple(found[READ]), tuple(found[WRITE]))

    def allows(self, token: str) -> set[str]:
        """What the token may do; nothing, where it is none of ours.

        All digests are compared, each in constant time, so the time says neither which one fits nor how much of it.
        """
        digest = _digest(token)
        may_write = sum([hmac.compare_digest(digest, known) for known in self.write]) > 0
        may_read = sum([hmac.compare_digest(digest, known) for known in self.read]) > 0
        return {READ, WRITE} if may_write else {READ} if may_read else set()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def is_open_to_others(path: Path) -> bool:
    """Whether every user of this machine can read the file."""
    try:
        return bool(os.stat(path).st_mode & 0o004)
    except OSError:
        return False
