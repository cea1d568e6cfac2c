"""Read the small records that commands keep in JSON files; one sentence says what is wrong.

`files.write_json` writes a record whole or not at all, so a damaged one was changed by hand or by a
disk. It is reported, and never taken for a missing one.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeAlias

from ..core.errors import TriglotError, shown

Fields: TypeAlias = Mapping[str, type | UnionType]  # the types of the fields that are read


class DamagedRecord(TriglotError):
    """A record is not what triglot wrote."""


def read_record(path: Path, fields: Fields, advice: str = "") -> dict[str, Any] | None:
    """Read a record; None if there is none.

    Args:
      path: the file.
      fields: the fields that it must have, with their types; it may have others.
      advice: what to do if it is damaged, for the message.

    Raises:
      DamagedRecord: if it is not JSON, is not an object, or a field is missing or of another type.
      TriglotError: if it cannot be read, such as a folder or another user's file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TriglotError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # also of another encoding
        raise _damaged(path, f"it is not JSON ({error})", advice) from None
    if not isinstance(content, dict):
        raise _damaged(path, f"it holds {shown(content)} and not an object", advice)
    check_fields(path, content, fields, advice)
    return content


def check_fields(path: Path, content: Mapping[str, Any], fields: Fields, advice: str = "") -> None:
    """Check the fields of a record.

    Raises:
      DamagedRecord: if a field is missing or of another type.
    """
    missing = [name for name in fields if name not in content]
    if missing:
        raise _damaged(path, f"it has no {', '.join(missing)}", advice)
    for name, kind in fields.items():
        if not isinstance(content[name], kind):
            what = getattr(kind, "__name__", str(kind))
            raise _damaged(path, f"its {name} must be {what}, got {shown(content[name])}", advice)


def _damaged(path: Path, problem: str, advice: str) -> DamagedRecord:
    return DamagedRecord(f"{path} is damaged: {problem}.{advice and f' {advice}'}")
