"""The gates of one joint test, tied together."""
