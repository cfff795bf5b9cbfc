"""Makes sound of codes."""
