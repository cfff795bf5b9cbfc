"""Recognizes speech with Whisper through faster-whisper and CTranslate2."""
