"""What trains a bundled model: its tables here or on the servers, its framework torch or Paddle."""
