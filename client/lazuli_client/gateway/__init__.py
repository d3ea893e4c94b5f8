"""`lazuli gateway`: an HTTP server that speaks what applications speak, in front of Lazuli servers.

Takes JSON of several APIs, returns theirs; asks the servers over gRPC. Keeps no state beyond its connections. Needs the
extra `gateway`.
"""
