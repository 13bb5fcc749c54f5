"""Pure: bytes in, frames and events out. No sockets, no clocks, no threads."""
