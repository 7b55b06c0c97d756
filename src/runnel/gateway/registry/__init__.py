"""The schema registry over HTTP, with Confluent's REST API.

routes.py: request → handlers.py → store.py: the topic `_schemas`, its replay → runnel.registry decides.
Any gateway serves any request: one transactional id is the lock of all that write.
"""
