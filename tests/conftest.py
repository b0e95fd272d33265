"""What every test shares: properties are tried on the same examples each time, so that a red run is red again.

``HYPOTHESIS_PROFILE=explore`` tries new examples, as `make soak` does.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeat", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

os.environ["RLCTL_LANGUAGE"] = "en"  # texts are looked for in English, whatever the locale
