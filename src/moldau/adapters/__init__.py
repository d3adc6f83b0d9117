"""The real outside behind the ports: files, sockets, threads, stores."""
