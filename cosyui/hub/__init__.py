"""Where a model comes from: the embedded voice, a local folder, Hugging Face or ModelScope."""

from cosyui.hub.files import needed_files, verify_folder
from cosyui.hub.source import EMBEDDED_FOLDER, Source, parse_source, resolve

__all__ = ["EMBEDDED_FOLDER", "Source", "needed_files", "parse_source", "resolve", "verify_folder"]
