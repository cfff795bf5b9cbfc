"""A thinker that makes trouble while it is loaded."""
