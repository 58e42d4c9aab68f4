"""The web page: one module per tab, words in Chinese and English, and the shell around Gradio."""
