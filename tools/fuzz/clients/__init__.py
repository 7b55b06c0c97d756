"""Sessions of real clients, each a program: `python -m tools.fuzz.clients.<client> <bootstrap> <topic>`.

As their requests will be broken and sent again many times, those that would change the cluster for all later
ones only try, or name what does not exist. Waiting is not what is tried, so they wait for little.
"""
