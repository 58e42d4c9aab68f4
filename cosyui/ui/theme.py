"""Colours, type and spacing: a calm teal on slate, light and dark. The finer layout is in the style sheets."""

from __future__ import annotations

from pathlib import Path

from gradio.themes import Base
from gradio.themes.utils import colors, fonts, sizes

_SHEETS = ("page.css", "ops.css", "voices.css", "history.css")
STYLE_SHEETS = [Path(__file__).with_name(name) for name in _SHEETS]

_SANS = (
    fonts.LocalFont("Source Sans Pro", weights=(400, 600)),
    "PingFang SC",
    "Microsoft YaHei",
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "system-ui",
    "sans-serif",
)
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def theme() -> Base:
    """The theme for `gr.mount_gradio_app`; fonts are local, nothing is fetched from elsewhere."""
    base = Base(
        primary_hue=colors.teal,
        secondary_hue=colors.teal,
        neutral_hue=colors.slate,
        spacing_size=sizes.spacing_md,
        radius_size=sizes.radius_lg,
        text_size=sizes.text_md,
        font=_SANS,
        font_mono=_MONO,
    )
    base.set(
        body_background_fill="#f4f6f8",
        body_background_fill_dark="#0d1117",
        body_text_color="#1c2733",
        body_text_color_dark="#dfe6ee",
        body_text_color_subdued="#5b6b7c",
        body_text_color_subdued_dark="#8b9aab",
        background_fill_primary="white",
        background_fill_primary_dark="#151b23",
        background_fill_secondary="#f7f9fb",
        background_fill_secondary_dark="#11161d",
        border_color_primary="#dde4ea",
        border_color_primary_dark="#29323d",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        block_padding="0px",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_label_text_color="#5b6b7c",
        block_label_text_color_dark="#8b9aab",
        block_title_text_color="#1c2733",
        block_title_text_color_dark="#dfe6ee",
        block_title_text_weight="600",
        block_title_text_size="*text_md",
        block_title_background_fill="transparent",
        block_title_padding="0",
        input_background_fill="white",
        input_background_fill_dark="#0f141b",
        input_border_color="#cfd8e0",
        input_border_color_dark="#323d4a",
        input_border_color_focus="*primary_600",
        input_border_color_focus_dark="*primary_500",
        input_border_width="1px",
        input_padding="10px 12px",
        input_placeholder_color="#8794a3",
        input_placeholder_color_dark="#66758a",
        input_radius="10px",
        input_shadow="none",
        input_shadow_focus="0 0 0 3px rgb(13 148 136 / 0.16)",
        slider_color="*primary_600",
        slider_color_dark="*primary_500",
        button_border_width="1px",
        button_large_radius="10px",
        button_small_radius="8px",
        button_primary_background_fill="#0f766e",
        button_primary_background_fill_hover="#0d655f",
        button_primary_background_fill_dark="#0d9488",
        button_primary_background_fill_hover_dark="#14a89b",
        button_primary_border_color="transparent",
        button_primary_border_color_dark="transparent",
        button_primary_text_color="white",
        button_primary_text_color_dark="white",
        button_secondary_background_fill="white",
        button_secondary_background_fill_hover="#eef2f5",
        button_secondary_background_fill_dark="#1b232d",
        button_secondary_background_fill_hover_dark="#242e3a",
        button_secondary_border_color="#cfd8e0",
        button_secondary_border_color_dark="#323d4a",
        button_secondary_text_color="#1c2733",
        button_secondary_text_color_dark="#dfe6ee",
    )
    return base
