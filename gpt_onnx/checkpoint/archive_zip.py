"""The directory of a zip archive, checked line by line before a member is read.

PyTorch stores what it writes and compresses nothing but code, so that a member is read only if it is stored
as it is, lies inside the file, and shares no byte with another member.

    >>> directory = read_directory(file, Path("ckpt.pt"))
    >>> read_member(file, directory, "data.pkl", limit=1 << 20)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpt_onnx.errors import CheckpointError

END = struct.Struct("<4s4H2LH")
END64_LOCATOR = struct.Struct("<4sLQL")
END64 = struct.Struct("<4sQ2H2L4Q")
ENTRY = struct.Struct("<4s4B4HL2L5H2L")
LOCAL = struct.Struct("<4s5H3L2H")
END_MARK, END64_LOCATOR_MARK, END64_MARK = b"PK\x05\x06", b"PK\x06\x07", b"PK\x06\x06"
ENTRY_MARK, LOCAL_MARK = b"PK\x01\x02", b"PK\x03\x04"
LONGEST_COMMENT = 0xFFFF
UNKNOWN_32 = 0xFFFFFFFF  # the true number stands in a zip64 field
ZIP64_FIELD = 1
STORED = 0
ENCRYPTED = 1  # a bit of the flags
MAX_DIRECTORY_BYTES = 32 << 20
MAX_MEMBERS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One line of the directory."""

    name: str
    """Its full name, as messages give it."""
    raw_name: bytes
    """The same as it stands in the file."""
    method: int
    flags: int
    crc: int
    size: int
    """Its bytes, which are as many in the file where it is stored."""
    packed_size: int
    header: int
    """Where its local header begins."""
    limit: int = 0
    """Where the next member, or the directory, begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Bytes of a file that hold one member as it is."""

    start: int
    size: int
    crc: int | None = None
    """Their checksum; None where the format has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """The members of an archive, all below one folder."""

    path: Path
    folder: str
    """The one folder, with the stroke at its end."""
    members: Mapping[str, Member]
    """By their names below the folder."""


def is_zip(path: Path) -> bool:
    """Whether a file begins as a zip archive does; never raises."""
    try:
        with path.open("rb") as file:
            return file.read(len(LOCAL_MARK)) == LOCAL_MARK
    except OSError:
        return False


def _damaged(path: Path, fault: str) -> CheckpointError:
    return CheckpointError(f"{path} {fault}; it is truncated or damaged: fetch or write it again.")


def _read_at(file: BinaryIO, path: Path, start: int, size: int) -> bytes:
    file.seek(start)
    data = file.read(size)
    if len(data) != size:
        raise _damaged(
            path, f"ends at byte {start + len(data)}, where {size} bytes from {start} were expected"
        )
    return data


def _end_of(file: BinaryIO, path: Path, size: int) -> tuple[int, int, int]:
    """Return where the directory begins, its bytes, and its entries."""
    tail_start = max(0, size - END.size - LONGEST_COMMENT)
    tail = _read_at(file, path, tail_start, size - tail_start)
    place = tail.rfind(END_MARK)
    if place < 0 or len(tail) - place < END.size:
        raise _damaged(path, "has no directory of a zip archive at its end")
    _, disk, first_disk, here, entries, length, start, comment = END.unpack_from(tail, place)
    if disk or first_disk or here != entries or place + END.size + comment != len(tail):
        raise _damaged(path, "ends in a zip directory of several parts or with bytes behind it")
    end = tail_start + place
    if large := _large_end_of(file, path, end):
        start, length, entries, end = large
    if start + length != end:
        raise _damaged(path, f"has {end - start - length} bytes between its directory and its end")
    return start, length, entries


def _large_end_of(file: BinaryIO, path: Path, end: int) -> tuple[int, int, int, int] | None:
    """Return the same of an archive that has the zip64 records, as PyTorch's do, and where those begin."""
    place = end - END64_LOCATOR.size
    if place < END64.size:
        return None
    mark, disk, record, disks = END64_LOCATOR.unpack(_read_at(file, path, place, END64_LOCATOR.size))
    if mark != END64_LOCATOR_MARK:
        return None
    if disk or disks > 1 or record + END64.size != place:
        raise _damaged(path, "has a wrong record of a large zip archive")
    mark, *_, here, entries, length, start = END64.unpack(_read_at(file, path, record, END64.size))
    if mark != END64_MARK or here != entries:
        raise _damaged(path, "has a wrong record of a large zip archive")
    return start, length, entries, record


def _wide(extra: bytes, values: list[int]) -> list[int]:
    """Return sizes and offset, those that do not fit 32 bits from the zip64 field.

    Raises:
        ValueError: if the field is missing or too short.
    """
    place = 0
    wide: bytes = b""
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, place)
        if kind == ZIP64_FIELD:
            wide = extra[place + 4 : place + 4 + length]
            break
        place += 4 + length
    found = []
    for value in values:
        if value == UNKNOWN_32:
            if len(wide) < 8:
                raise ValueError("no zip64 field")
            value, wide = int.from_bytes(wide[:8], "little"), wide[8:]
        found.append(value)
    return found


def _entries(path: Path, data: bytes, count: int) -> list[Member]:
    """Read the lines of a directory, in their order."""
    members, place = [], 0
    for _ in range(count):
        try:
            fields = ENTRY.unpack_from(data, place)
            mark, flags, method, crc, packed, size = fields[0], *fields[5:7], *fields[9:12]
            name_size, extra_size, comment_size, header = *fields[12:15], fields[18]
            place += ENTRY.size
            raw = data[place : place + name_size]
            extra = data[place + name_size : place + name_size + extra_size]
            place += name_size + extra_size + comment_size
            size, packed, header = _wide(extra, [size, packed, header])
            name = raw.decode()
        except (struct.error, ValueError) as exc:
            raise _damaged(path, "has a zip directory that cannot be read") from exc
        if mark != ENTRY_MARK or place > len(data):
            raise _damaged(path, "has a zip directory that cannot be read")
        members.append(
            Member(
                name=name,
                raw_name=raw,
                method=method,
                flags=flags,
                crc=crc,
                size=size,
                packed_size=packed,
                header=header,
            )
        )
    if place != len(data):
        raise _damaged(path, "has a zip directory that is longer than its entries")
    return members


def _limited(path: Path, members: list[Member], end: int) -> dict[str, Member]:
    """Give each member the place at which the next one begins; refuse what overlaps or occurs twice."""
    ordered = sorted(members, key=lambda member: member.header)
    limits = [*(member.header for member in ordered[1:]), end]
    found: dict[str, Member] = {}
    for member, limit in zip(ordered, limits, strict=True):
        if member.name in found:
            raise CheckpointError(f"{path} has two members {member.name!r}; its directory cannot be trusted.")
        if member.header + LOCAL.size + len(member.raw_name) + member.packed_size > limit:
            raise CheckpointError(
                f"{path}: its member {member.name!r} of {member.packed_size} bytes at {member.header} "
                f"reaches beyond {limit}, where something else begins; its directory cannot be trusted."
            )
        found[member.name] = Member(
            **{name: getattr(member, name) for name in Member.__slots__ if name != "limit"}, limit=limit
        )
    return found


def _folder_of(path: Path, names: list[str]) -> str:
    """Return the one folder that all members are in."""
    for name in names:
        parts = name.split("/")
        if len(parts) < 2 or any(part in ("", ".", "..") for part in parts) or "\\" in name or "\0" in name:
            raise CheckpointError(
                f"{path} has the member {name[:200]!r}; "
                "an archive of PyTorch holds plain names below one folder."
            )
    folders = {name.partition("/")[0] for name in names}
    if len(folders) != 1:
        raise CheckpointError(
            f"{path} has members in {len(folders)} folders; an archive of PyTorch has one: "
            "this is another zip file."
        )
    return f"{folders.pop()}/"


def read_directory(file: BinaryIO, path: Path) -> Directory:
    """Read and check the directory of an archive that PyTorch wrote.

    Raises:
        CheckpointError: if it is damaged, or not one of PyTorch's.
    """
    size = file.seek(0, 2)
    start, length, count = _end_of(file, path, size)
    if length > MAX_DIRECTORY_BYTES or count > MAX_MEMBERS:
        raise CheckpointError(
            f"{path} has a directory of {count} members in {length} bytes; at most {MAX_MEMBERS} in "
            f"{MAX_DIRECTORY_BYTES} are read."
        )
    members = _entries(path, _read_at(file, path, start, length), count)
    if not members:
        raise CheckpointError(f"{path} is an empty zip archive; a checkpoint holds data.pkl.")
    folder = _folder_of(path, [member.name for member in members])
    limited = _limited(path, members, start)
    return Directory(
        path=path,
        folder=folder,
        members={name.removeprefix(folder): member for name, member in limited.items()},
    )


def locate(file: BinaryIO, directory: Directory, name: str) -> Extent:
    """Find the bytes of a member that is stored as it is.

    Raises:
        CheckpointError: if there is none, it is compressed, or its own header contradicts the directory.
    """
    path, member = directory.path, directory.members.get(name)
    if member is None:
        raise CheckpointError(f"{path} lacks its member {directory.folder}{name}; fetch or write it again.")
    if member.method != STORED or member.flags & ENCRYPTED or member.size != member.packed_size:
        raise CheckpointError(
            f"{path}: its member {member.name!r} is compressed or encrypted; PyTorch stores weights as they "
            "are: unpack the file with the program that packed it, and save it with torch.save."
        )
    header = LOCAL.unpack(_read_at(file, path, member.header, LOCAL.size))
    name_size, extra_size = header[9:11]
    raw = _read_at(file, path, member.header + LOCAL.size, name_size)
    start = member.header + LOCAL.size + name_size + extra_size
    agrees = header[0] == LOCAL_MARK and raw == member.raw_name and header[3] == STORED
    if not agrees or start + member.size > member.limit:
        raise _damaged(
            path, f"has another member at byte {member.header} than its directory says ({member.name})"
        )
    return Extent(start=start, size=member.size, crc=member.crc)


def read_member(file: BinaryIO, directory: Directory, name: str, limit: int) -> bytes:
    """Read a small member whole and check its checksum.

    Raises:
        CheckpointError: as ``locate``, or if it is larger than the limit or its bytes are damaged.
    """
    extent = locate(file, directory, name)
    if extent.size > limit:
        raise CheckpointError(f"{directory.path}: {name} has {extent.size} bytes; at most {limit} are read.")
    data = _read_at(file, directory.path, extent.start, extent.size)
    if zlib.crc32(data) != extent.crc:
        raise _damaged(directory.path, f"has bytes in {name} that do not match their checksum")
    return data
