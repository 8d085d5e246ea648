"""A client of the control API of endpoints, in plain Python. It loads no native code.

:class:`Client` blocks and :class:`AsyncClient` awaits. Both have the same methods and make the same
decisions. :func:`copy` makes one endpoint copy files from another. docs/reference/api.md describes
the API.
"""

from __future__ import annotations

from dray.client._answers import (
    Admission,
    AdmissionVerdict,
    ByteCounts,
    Checksum,
    Entry,
    Eta,
    Event,
    FileCounts,
    FileFailure,
    FileOutcome,
    Miss,
    ObjectCounts,
    Obstacle,
    Profile,
    RateLimit,
    Rates,
    ReceiptKeys,
    ReceiptReference,
    Space,
    SpaceClaim,
    Staged,
    Ticket,
    Transfer,
    TransferState,
)
from dray.client._async import AsyncClient
from dray.client._endpoint import EndpointInfo, Health, RetryInfo, RootInfo, Scheduling, You
from dray.client._flows import Policy
from dray.client._live import FolderSums, LiveFile, LiveFiles
from dray.client._load import EndpointLoad, HiddenLoad, Promise, Session
from dray.client._log import LogFile, LogRange, ObjectLog, TransferLog
from dray.client._requests import (
    KEEP,
    Content,
    Keep,
    ListedFile,
    Place,
    Range,
    Request,
    Retry,
    Scitag,
    Selection,
    StagingRequest,
    WriteRequest,
)
from dray.client._sync import Client
from dray.client._tape import TapeFile, TapeLocality, TapeProgress, TapeStage
from dray.client._targets import StorageTarget
from dray.client._third_party import AsyncCopy, Copy, copy, copy_async
from dray.client._tiers import Tier, TierDevice, TierReplica, TierVersion, WriteJob
from dray.client._tokens import DISCOVER, Discover, TokenSource
from dray.client._urls import escape, unescape

__all__ = [
    "DISCOVER",
    "KEEP",
    "Admission",
    "AdmissionVerdict",
    "AsyncClient",
    "AsyncCopy",
    "ByteCounts",
    "Checksum",
    "Client",
    "Content",
    "Copy",
    "Discover",
    "EndpointInfo",
    "EndpointLoad",
    "Entry",
    "Eta",
    "Event",
    "FileCounts",
    "FileFailure",
    "FileOutcome",
    "FolderSums",
    "Health",
    "HiddenLoad",
    "Keep",
    "ListedFile",
    "LiveFile",
    "LiveFiles",
    "LogFile",
    "LogRange",
    "Miss",
    "ObjectCounts",
    "ObjectLog",
    "Obstacle",
    "Place",
    "Policy",
    "Profile",
    "Promise",
    "Range",
    "RateLimit",
    "Rates",
    "ReceiptKeys",
    "ReceiptReference",
    "Request",
    "Retry",
    "RetryInfo",
    "RootInfo",
    "Scheduling",
    "Scitag",
    "Selection",
    "Session",
    "Space",
    "SpaceClaim",
    "Staged",
    "StagingRequest",
    "StorageTarget",
    "TapeFile",
    "TapeLocality",
    "TapeProgress",
    "TapeStage",
    "Ticket",
    "Tier",
    "TierDevice",
    "TierReplica",
    "TierVersion",
    "TokenSource",
    "Transfer",
    "TransferLog",
    "TransferState",
    "WriteJob",
    "WriteRequest",
    "You",
    "copy",
    "copy_async",
    "escape",
    "unescape",
]
