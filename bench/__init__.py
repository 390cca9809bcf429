"""Measurements of what the project promises, each printing one table. A missed target fails nothing: the table says so.

Every measurement runs on a server of its own (deploy.embedded). Rates are compared with rates of the same run only,
taken in turns, since a machine's speed changes from minute to minute.
"""
