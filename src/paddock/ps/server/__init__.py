"""The shell of one server: sockets, threads, and the store they share."""
