"""Structured logs: one JSON object a line on stderr. Fields are ids, times and counts; never texts, audio or keys."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

ROOT = "cosyui"


class JsonFormatter(logging.Formatter):
    """``{"time", "level", "logger", "event", ...fields}``; an exception is added as its type and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields: dict[str, Any] = getattr(record, "fields", {})
        line.update(fields)
        if hasattr(record, "request_id"):
            line["request_id"] = record.request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def setup_logging(level: str = "info", stream: TextIO | None = None) -> None:
    """Send all logs of this project to ``stream`` (default stderr). Calling it again replaces the former setup."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger(ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def relay(logger: logging.Logger, line: str, **fields: Any) -> None:
    """Log a line of another process: one of this form keeps its level and fields, anything else is quoted whole."""
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or "event" not in parsed:
        log(logger, logging.INFO, "engine_stderr", line=line, **fields)
        return
    level = logging.getLevelNamesMapping().get(str(parsed.pop("level", "")).upper(), logging.INFO)
    parsed.pop("time", None)
    log(logger, level, str(parsed.pop("event")), **(parsed | fields))


def log(logger: logging.Logger, level: int, event: str, /, **fields: Any) -> None:
    """Log ``event`` with ``fields``; floats are rounded to the millisecond."""
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}
    logger.log(level, event, extra={"fields": rounded})
