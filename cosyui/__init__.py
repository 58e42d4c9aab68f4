"""cosyui: CosyVoice3 voice cloning as a web page and a service on one GPU or none."""

__version__ = "0.1.0"
