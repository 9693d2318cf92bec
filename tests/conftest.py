"""Examples are drawn without a limit on the time of one: on a busy machine it would be met by chance."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
