"""Types of the native module. Change them together with the code in engine/crates/dray-py."""

from collections.abc import Callable
from typing import TypedDict

from dray.errors import DrayError, ErrorKind
from dray.transfer import Durability, Stage, TransferState

class Counters(TypedDict):
    seconds: float
    is_listing_done: bool
    files_listed: int
    bytes_listed: int
    files_done: int
    files_adopted: int
    files_skipped: int
    files_failed: int
    bytes_durable: int
    bytes_resumed: int
    bytes_read_back: int
    objects_sent: int
    objects_resumed: int
    bytes_sent: int
    bytes_read: int

class ProfileWords(TypedDict):
    source: dict[Stage, float]
    sink: dict[Stage, float]

class Report(TypedDict):
    transfer_id: str
    state: TransferState
    files: int
    bytes: int
    objects: int
    objects_sent: int
    objects_resumed: int
    files_skipped: int
    files_adopted: int
    bytes_sent: int
    bytes_read: int
    bytes_resumed: int
    bytes_read_back: int
    seconds: float
    files_failed: list[tuple[str, DrayError]]
    files_failed_total: int
    profile: ProfileWords
    bottleneck: Stage | None

class TenureWords(TypedDict):
    epoch: int
    holder: str
    transfer_id: str
    boot_id: bytes
    durability: Durability

class FileWords(TypedDict):
    path: str
    size: int
    modified_ns: int
    checksum: str | None
    identity: bytes
    object_size: int
    partial_name: str
    done: list[tuple[int, int, tuple[int, int]]]
    is_weak: bool

class DamageWords(TypedDict):
    places: list[tuple[int, int]]
    count: int
    files_forgotten: int
    files_kept: int

class LogWords(TypedDict):
    claims: list[str]
    owner: bytes
    nonce: int
    software: str
    first_tenure: TenureWords
    tenure: TenureWords
    files: list[FileWords]
    torn_bytes: int
    damage: DamageWords | None
    records_over_limit: int
    log_bytes: int

class Asked(TypedDict):
    sources: list[bytes]
    destination: bytes
    recursive: bool
    overwrite: str
    durability: str
    order: str
    object_size: int | None
    verify: bool
    resume: str
    checksum: str | None
    include: list[str]
    exclude: list[str]
    rate: int | None
    transfer_id: str | None
    links: str
    xattrs: bool
    stripe: str | None
    checksum_attributes: bool
    pool_bytes: int | None

class Summer:
    def __init__(self) -> None: ...
    def update(self, data: bytes | bytearray) -> None: ...
    def sums(self) -> tuple[int, int]: ...
    @property
    def length(self) -> int: ...

def version() -> str: ...
def error_kinds() -> list[ErrorKind]: ...
def checksum(data: bytes | bytearray) -> tuple[int, int]: ...
def combine(
    first: tuple[int, int], second: tuple[int, int], second_length: int
) -> tuple[int, int]: ...
def copy(
    asked: Asked,
    progress: Callable[[Counters], object] | None,
    on_event: Callable[..., object] | None,
) -> Report: ...
def read_log(path: bytes) -> LogWords: ...
