"""The console: pages rendered by the gateway, with htmx and a little JavaScript in the browser.

A page is a frame with its content. The frame needs nothing of the cluster; if the content is not there within
a moment, the frame is sent without it, and the browser asks for it again (`pages.py`). What changes something
is a dialog (`dialogs.py`); read-only gateways have none of their routes.
"""
