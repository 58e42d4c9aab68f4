"""Errors that a person can act on: a stable code, a sentence that says what to do, and the field it belongs to."""

from __future__ import annotations


class CosyuiError(Exception):
    """Base of every error that may be shown to a user.

    ``code`` is stable and documented in docs/errors.md; ``message`` is plain English and says what to do;
    ``field`` names the input it belongs to (``text``, ``clip``, ``transcript``, ``instruction``, ``speed``, ``seed``,
    ``mode``) or is None; ``status`` is the HTTP status of the same error in the API. Instances pickle unchanged.
    """

    status = 500

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(code, message, field)
        self.code = code
        self.message = message
        self.field = field

    def __str__(self) -> str:
        return self.message


class InputError(CosyuiError):
    """The request itself is wrong: text, clip, transcript or a setting of the take."""

    status = 400


class BusyError(CosyuiError):
    """The queue is full; the same request may succeed later."""

    status = 429


class DeadlineError(CosyuiError):
    """The request was not finished by the time that it was wanted."""

    status = 504


class RightsError(CosyuiError):
    """Whoever asks may not do this."""

    status = 403


class MissingError(CosyuiError):
    """What is asked for is not here."""

    status = 404


class ConflictError(CosyuiError):
    """What is asked for does not go together with what is here already."""

    status = 409


class TooManyError(CosyuiError):
    """The same was tried too often; it is taken again a little later."""

    status = 429


class CheckpointError(CosyuiError):
    """The model folder is missing, incomplete or damaged."""

    status = 503


class EngineError(CosyuiError):
    """The engine could not finish a request (crash after its retry, bad output after its retry, out of memory)."""

    status = 500


class SetupError(CosyuiError):
    """The service cannot start as configured: unknown setting, port in use, folder not writable."""
