"""Voices in English: labels of the tab and of the fields about a voice, and what the server says there."""

from cosyui.ui.locales.en_panel import LABELS as OF_PANEL

LABELS = OF_PANEL | {
    "tab_voices": "Voices",
    "voice_new": "Save a new voice",
    "voice_list": "Saved voices",
    "voice_search": "Search",
    "voice_search_placeholder": "Part of a name, a language or a note",
    "voice_name": "Name",
    "voice_name_placeholder": "For example: Ann, calm",
    "voice_name_hint": (
        "1 to 80 characters of any script, without line breaks. Names must differ by more than capitals."
    ),
    "voice_language": "Language of the clip",
    "language_any": "Not said",
    "language_zh": "Chinese",
    "language_en": "English",
    "language_ja": "Japanese",
    "language_ko": "Korean",
    "language_ru": "Russian",
    "language_de": "German",
    "language_fr": "French",
    "language_es": "Spanish",
    "language_it": "Italian",
    "voice_consent": "Who agreed",
    "voice_consent_placeholder": "For example: Ann herself, in writing",
    "voice_consent_hint": "Everybody who may open this page can use a saved voice. Name who agreed to that.",
    "voice_consent_own": "It is my own voice",
    "voice_transcript_hint": "Exactly what is said. Left empty, the voice can only be used without the clone mode.",
    "voice_save": "Save the voice",
    "voice_import": "Import a voice",
    "voice_file": "Exported voice",
    "voice_file_hint": "The .zip of an export, or the clip.wav and the voice.json out of it, both at once.",
    "voice_import_name": "Another name",
    "voice_import_name_placeholder": "As in the file",
    "voice_import_go": "Import",
    "voice_clip": "Its clip",
    "voice_preview": "Hear it speak",
    "voice_change": "Save changes",
    "voice_export": "Export",
    "voice_delete": "Delete",
    "voice_delete_sure": "Yes, delete it for everybody",
    "voice_choice": "Voice",
    "voice_own": "Own clip",
    "voice_keep": "Save this voice for later",
}

SAID = {
    "voice_built_en": "English example (built in)",
    "voice_built_zh": "Chinese example (built in)",
    "voice_count": "{count}",
    "voices_none": "No voice is saved yet.",
    "voices_no_match": "No voice fits.",
    "voice_seconds": "{seconds:.1f} s",
    "voice_mute": "no transcript",
    "voice_consent_own_text": "My own voice.",
    "voice_saved": "Saved: {name}.",
    "voice_changed": "The changes are saved.",
    "voice_deleted": "Deleted: {name}, with its clip, transcript and note.",
    "voice_exported": "{name} is on its way.",
    "voice_lost": "A voice that was deleted",
    "voice_quote": "“{text}”",
    "voice_without_words": (
        "No transcript: use it across languages or with a direction, or add what its clip says on the Voices tab."
    ),
    "voice_locked": "Saved with an API key: it can be used here, and neither changed nor deleted.",
}
