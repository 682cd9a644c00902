"""A scheduler that behaves as OpenPBS does towards its users, for tests: it really runs jobs, and tells the same lies.

It stands on what was observed on a real one (version 23.06.06) and has no more of it than the tests of hpcsweep
meet. One process keeps all state in memory and serves the clients in `bin/` over a Unix socket.
"""
