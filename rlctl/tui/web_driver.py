"""The driver of the app in a browser (``rlctl tui --web``): it ends the app when the page, or the server, is gone."""

from __future__ import annotations

import os
import signal

from textual.drivers.web_driver import WebDriver

ENDING_SECONDS = 5.0
"""Within which an app whose page is gone ends by itself. What is edited is in a recovery file."""


class PageDriver(WebDriver):
    """Textual's, which reads the input of a page that is gone to its end and leaves the app running."""

    def run_input_thread(self) -> None:
        super().run_input_thread()
        os.kill(os.getpid(), signal.SIGTERM)
        if not self.exit_event.wait(ENDING_SECONDS):
            os._exit(1)
