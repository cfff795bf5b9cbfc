"""A talker on Piper: small VITS voices, on the CPU. Piper is under the GPL-3."""
