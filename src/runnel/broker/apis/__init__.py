"""One file per API, named as in `messages/`; `handlers` is the table of all of them."""
