"""What the adapters of all frameworks share. numpy only: frameworks are imported by their own."""
