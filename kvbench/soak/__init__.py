"""A run that lasts for days: kept going, watched and stopped."""
