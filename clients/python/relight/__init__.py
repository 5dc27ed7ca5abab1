"""Client of Relight: calls of models and tools that are retried, failed over and resumed.

>>> import relight                                              # doctest: +SKIP
>>> client = relight.Client("127.0.0.1:50051")                  # doctest: +SKIP
>>> print(client.invoke("Why is the sky blue?").text)           # doctest: +SKIP
"""

from relight.client import Client, system, user
from relight.connection import Reconnect, Tls
from relight.errors import DeadlineExceeded, Error, FailureError, ProtocolError, StatusError
from relight.outcome import Answer, Failed, Outcome, ToolOutcome, ToolResult
from relight.stream import ResumePoint, Rewind, Stream, Text
from relight.watch import Watch

__all__ = [
    "Answer",
    "Client",
    "DeadlineExceeded",
    "Error",
    "Failed",
    "FailureError",
    "Outcome",
    "ProtocolError",
    "Reconnect",
    "ResumePoint",
    "Rewind",
    "StatusError",
    "Stream",
    "Text",
    "Tls",
    "ToolOutcome",
    "ToolResult",
    "Watch",
    "system",
    "user",
]
